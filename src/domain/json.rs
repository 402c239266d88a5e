//! The JSON objects of the interface: animals, orders and messages.
//!
//! Written by hand, because listing is the hottest path of the service. Tests compare the text with `serde_json`.

use super::{Message, Order, Pet, Timestamp};

pub fn pet_json(pet: &Pet<'_>) -> Vec<u8> {
    let mut json = Vec::with_capacity(pet.name.len() + 96);
    write_pet(pet, &mut json);
    json
}

/// Appends an animal as a JSON object.
pub fn write_pet(pet: &Pet<'_>, out: &mut Vec<u8>) {
    let mut digits = itoa::Buffer::new();
    out.extend_from_slice(b"{\"id\":");
    out.extend_from_slice(digits.format(pet.id).as_bytes());
    out.extend_from_slice(b",\"name\":");
    write_string(out, &pet.name);
    out.extend_from_slice(b",\"categoryId\":");
    out.extend_from_slice(digits.format(pet.category_id).as_bytes());
    out.extend_from_slice(b",\"status\":\"");
    out.extend_from_slice(pet.status.as_str().as_bytes());
    out.extend_from_slice(b"\"}");
}

pub fn order_json(order: &Order) -> Vec<u8> {
    let mut json = Vec::with_capacity(160);
    write_order(order, &mut json);
    json
}

/// Appends an order as a JSON object.
pub fn write_order(order: &Order, out: &mut Vec<u8>) {
    let mut digits = itoa::Buffer::new();
    out.extend_from_slice(b"{\"id\":");
    out.extend_from_slice(digits.format(order.id).as_bytes());
    out.extend_from_slice(b",\"petId\":");
    out.extend_from_slice(digits.format(order.pet_id).as_bytes());
    out.extend_from_slice(b",\"accountId\":");
    out.extend_from_slice(digits.format(order.account.0).as_bytes());
    out.extend_from_slice(b",\"status\":\"");
    out.extend_from_slice(order.status.as_str().as_bytes());
    out.extend_from_slice(b"\",\"createdAt\":\"");
    order.created_at.write(out);
    out.extend_from_slice(b"\",\"updatedAt\":\"");
    order.updated_at.write(out);
    out.extend_from_slice(b"\"}");
}

/// A message as it is when the service accepts it.
pub fn message_json(message: &Message) -> Vec<u8> {
    let mut json = Vec::with_capacity(message.text.as_str().len() + 160);
    write_message(message, None, &mut json);
    json
}

/// Appends a message as a JSON object. It was acknowledged at `sent_at`.
pub fn write_message(message: &Message, sent_at: Option<Timestamp>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"id\":\"");
    out.extend_from_slice(&message.id.to_ascii());
    out.extend_from_slice(b"\",\"message\":");
    write_string(out, message.text.as_str());
    out.extend_from_slice(b",\"status\":\"");
    out.extend_from_slice(Message::status(sent_at).as_bytes());
    out.extend_from_slice(b"\",\"createdAt\":\"");
    message.created_at.write(out);
    out.extend_from_slice(b"\"}");
}

fn write_string(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("encoding a string into a Vec cannot fail");
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::domain::{AccountId, MessageIds, MessageText, NewOrder, PetStatus, Transition};

    const NOW: Timestamp = Timestamp::from_milliseconds(1_795_167_000_123);

    #[test]
    fn animal_is_written_as_serde_writes_it() {
        for name in ["Rex", "\"\\/", "ß🦊\u{2028}", "</script>"] {
            let pet =
                Pet { id: 9_007_199_254_740_991, name: name.into(), category_id: i64::MIN, status: PetStatus::Sold };
            let expected = format!(
                r#"{{"id":9007199254740991,"name":{},"categoryId":-9223372036854775808,"status":"sold"}}"#,
                serde_json::to_string(name).unwrap()
            );
            assert_eq!(String::from_utf8(pet_json(&pet)).unwrap(), expected);
        }
    }

    #[test]
    fn order_is_written_as_documented() {
        let order = NewOrder { account: AccountId(1), pet_id: 31, now: NOW }.with_id(7);
        let approved = order.after(Transition::Approve, NOW.plus(Duration::from_secs(1))).unwrap();
        assert_eq!(
            String::from_utf8(order_json(&approved)).unwrap(),
            r#"{"id":7,"petId":31,"accountId":1,"status":"approved","createdAt":"2026-11-20T09:30:00.123Z","updatedAt":"2026-11-20T09:30:01.123Z"}"#
        );
    }

    #[test]
    fn message_is_written_as_serde_writes_it() {
        for text in ["Hello", "\"\\/\t\r\n", "ß🦊\u{2028}"] {
            let message =
                Message::new(&MessageIds::default(), AccountId(1), MessageText::parse(text.into()).unwrap(), NOW);
            let expected = format!(
                r#"{{"id":"{}","message":{},"status":"queued","createdAt":"2026-11-20T09:30:00.123Z"}}"#,
                message.id,
                serde_json::to_string(text).unwrap()
            );
            assert_eq!(String::from_utf8(message_json(&message)).unwrap(), expected);
        }
    }
}
