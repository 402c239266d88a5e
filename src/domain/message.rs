//! Messages, and their outbox. A message is queued until the web server of the relay has acknowledged it; then it is sent.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{AccountId, Email, Text, Timestamp, names, write_json_string};

/// A message's text: 1 to 10,000 Unicode characters, not only white space. Tab, line feed and carriage return are the
/// only control characters allowed.
pub type MessageText = Text<10_000, true>;

/// An accepted message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub id: MessageId,
    pub account: AccountId,
    pub text: MessageText,
    pub created_at: Timestamp,
}

impl Message {
    /// The fields of the JSON object of a new message.
    pub const FIELDS: [&str; 1] = ["message"];

    /// Returns the status of a message. `sent_at` is the time at which it was acknowledged.
    pub const fn status(sent_at: Option<Timestamp>) -> &'static str {
        match sent_at {
            None => "queued",
            Some(_) => "sent",
        }
    }

    pub fn new(ids: &MessageIds, account: AccountId, text: MessageText, now: Timestamp) -> Self {
        Self { id: ids.next(now), account, text, created_at: now }
    }

    /// Returns the message as it is when the service accepts it.
    pub fn to_json(&self) -> Vec<u8> {
        let mut json = Vec::with_capacity(self.text.as_str().len() + 160);
        self.write_json(None, &mut json);
        json
    }

    /// Appends the JSON object of the API. `sent_at` is the time at which the message was acknowledged.
    pub fn write_json(&self, sent_at: Option<Timestamp>, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"id\":\"");
        out.extend_from_slice(&self.id.to_ascii());
        out.extend_from_slice(b"\",\"message\":");
        write_json_string(out, self.text.as_str());
        out.extend_from_slice(b",\"status\":\"");
        out.extend_from_slice(Self::status(sent_at).as_bytes());
        out.extend_from_slice(b"\",\"createdAt\":\"");
        self.created_at.write(out);
        out.extend_from_slice(b"\"}");
    }
}

/// A message with its account's address and its delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageRecord {
    pub message: Message,
    pub account: Email,
    /// When the web server acknowledged the message. `None` while it is queued.
    pub sent_at: Option<Timestamp>,
}

/// A message and the time at which it was acknowledged. `None` while the message is queued.
pub type TrackedMessage = (Message, Option<Timestamp>);

names! {
    /// State of a message in the outbox.
    pub enum MessageState {
        Waiting = "waiting",
        Sent = "sent",
    }
}

/// Selects messages. The default selects all messages of all accounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageQuery {
    pub account: Option<AccountId>,
    pub state: Option<MessageState>,
    /// Maximum number of messages, newest first. If `None`, lists all by account, oldest first.
    pub newest: Option<u32>,
}

/// The order of the ids of a process: each is greater than all before it, also within a millisecond and after the clock
/// was set back. Holds the last id's milliseconds and, in the lower `COUNTER_BITS`, its number within the millisecond.
#[derive(Debug, Default)]
pub struct MessageIds(AtomicU64);

/// Length of the counter (RFC 9562, section 6.2, method 1). An overflow increments the milliseconds.
const COUNTER_BITS: u32 = 12;

impl MessageIds {
    fn next(&self, now: Timestamp) -> MessageId {
        let now = now.as_milliseconds().unsigned_abs() << COUNTER_BITS;
        let after = |last: u64| Some(now.max(last.saturating_add(1)));
        let last = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after).unwrap_or_else(|last| last);
        let place = now.max(last.saturating_add(1));
        let mut counter_and_random = [0; 10];
        let counter = place % (1 << COUNTER_BITS);
        counter_and_random[..2].copy_from_slice(&counter.to_be_bytes()[6..]);
        counter_and_random[2..].copy_from_slice(&random_bytes());
        MessageId(uuid::Builder::from_unix_timestamp_millis(place >> COUNTER_BITS, &counter_and_random).into_uuid())
    }
}

/// A UUIDv7 (RFC 9562, section 5.7), shown as `msg_` and its 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(pub uuid::Uuid);

impl MessageId {
    pub const MIN: Self = Self(uuid::Uuid::nil());
    pub const MAX: Self = Self(uuid::Uuid::max());

    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    /// Returns the next greater id.
    pub const fn successor(self) -> Self {
        Self(uuid::Uuid::from_u128(self.0.as_u128().saturating_add(1)))
    }

    /// Returns the next smaller id.
    pub const fn predecessor(self) -> Self {
        Self(uuid::Uuid::from_u128(self.0.as_u128().saturating_sub(1)))
    }

    /// Parses an id as displayed. `None` if `text` is not an id.
    pub fn parse(text: &str) -> Option<Self> {
        let id = Self(uuid::Uuid::try_parse(text.strip_prefix("msg_")?).ok()?);
        (id.to_ascii() == *text.as_bytes()).then_some(id)
    }

    /// Returns the id as displayed, in ASCII.
    pub fn to_ascii(self) -> [u8; 36] {
        let mut shown = *b"msg_00000000000000000000000000000000";
        self.0.simple().encode_lower(&mut shown[4..]);
        shown
    }
}

/// Returns the random part of an id. Random bytes are fetched for 64 ids at a time, because a system call per id costs
/// 2 % of a `sendMessage` request.
fn random_bytes() -> [u8; 8] {
    const IDS: usize = 64;
    thread_local!(static FETCHED: RefCell<Vec<[u8; 8]>> = const { RefCell::new(Vec::new()) });
    FETCHED.with_borrow_mut(|fetched| {
        if fetched.is_empty() {
            fetched.resize(IDS, [0; 8]);
            getrandom::fill(fetched.as_flattened_mut()).expect("the operating system has random bytes");
        }
        fetched.pop().expect("some were just fetched")
    })
}

impl std::fmt::Display for MessageId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "msg_{}", self.0.simple())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_is_written_as_serde_writes_it() {
        let now = Timestamp::from_milliseconds(1_795_167_000_123);
        for text in ["Hello", "\"\\/\t\r\n", "ß🦊\u{2028}"] {
            let message =
                Message::new(&MessageIds::default(), AccountId(1), MessageText::parse(text.into()).unwrap(), now);
            let expected = format!(
                r#"{{"id":"{}","message":{},"status":"queued","createdAt":"2026-11-20T09:30:00.123Z"}}"#,
                message.id,
                serde_json::to_string(text).unwrap()
            );
            assert_eq!(String::from_utf8(message.to_json()).unwrap(), expected);
        }
    }

    #[test]
    fn id_is_a_version_7_uuid_that_starts_with_the_time() {
        let id = MessageIds::default().next(Timestamp::from_milliseconds(0x0192_0000_0000)).to_string();
        assert!(id.starts_with("msg_0192000000007"), "{id}");
        assert_eq!(id.len(), 36);
        assert_eq!(MessageId::parse(&id).unwrap().to_string(), id);
        for other in [&id[4..], &id[..35], &id.to_uppercase(), &id.replace("msg_0192", "msg_019A")] {
            assert_eq!(MessageId::parse(other), None, "{other}");
        }
    }

    #[test]
    fn ids_grow_within_a_millisecond_and_after_the_clock_was_set_back() {
        let ids = MessageIds::default();
        let mut last = ids.next(Timestamp::from_milliseconds(0));
        let times = [0, 5, 5, 4, 3_600_000, 0, -1].into_iter().chain([0; 5_000]).chain([3_700_000]);
        for time in times {
            let next = ids.next(Timestamp::from_milliseconds(time));
            assert!(next.as_bytes() > last.as_bytes(), "{next} follows {last}");
            last = next;
        }
        let (version, variant) = (last.0.get_version_num(), last.0.get_variant());
        assert_eq!((version, variant), (7, uuid::Variant::RFC4122));
        assert_eq!(last.0.as_u128() >> 80, 3_700_000, "the clock leads again");
    }

    #[test]
    fn ids_of_two_processes_differ() {
        let id = || MessageIds::default().next(Timestamp::from_milliseconds(0));
        assert_ne!(id(), id());
    }
}
