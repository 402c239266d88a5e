//! Messages.

use axum::http::StatusCode;

use crate::api::call::Call;
use crate::api::error::ApiError;
use crate::api::input::fields::Fields;
use crate::api::input::pagination::{self, Items};
use crate::api::input::{idempotency, query_and_body};
use crate::api::response::Response;
use crate::domain::{Direction, Invalid, Message, MessageId, MessageText};
use crate::store::StoredResponse;

/// Handles `sendMessage`.
pub async fn send(call: &Call<'_>) -> Result<Response, ApiError> {
    let api = call.api;
    let message = Message::new(&api.message_ids, call.account, parse_message(&call.body)?, api.clock.now());
    let outcome = api.store.create_message(message, call.key(&accepted)?).await?;
    if let Some(relay) = api.relay.get() {
        relay.message_queued();
    }
    idempotency::respond(outcome, accepted)
}

/// The 202 response for `message`.
fn accepted(message: &Message) -> StoredResponse {
    StoredResponse::json(StatusCode::ACCEPTED.as_u16(), message.to_json())
}

/// Handles `listMessages`.
pub async fn list(call: &Call<'_>) -> Result<Response, ApiError> {
    let [limit, after] = query_and_body::parameters(call.query(), ["limit", "after"])?;
    let (limit, after) = (pagination::limit(limit)?, after.map(|text| parse_cursor(&text)).transpose()?);
    let (messages, more) = call.api.store.list_messages_of(call.account, Direction::Ascending, after, limit).await?;
    let mut items = Items::new();
    for (message, sent_at) in messages {
        message.write_json(sent_at, items.add(message.id));
    }
    Ok(items.into_page(more, |last| call.next_page(limit, "", last)).into_response())
}

/// Parses `after`. Any id is a valid position in the list, even the id of a deleted message.
fn parse_cursor(text: &str) -> Result<MessageId, ApiError> {
    let expected = "must be the id of a message: `msg_` and 32 hexadecimal digits";
    MessageId::parse(text).ok_or_else(|| ApiError::invalid_value("after")(Invalid(expected.into())))
}

pub fn parse_message(text: &str) -> Result<MessageText, ApiError> {
    Fields::parse(text, Message::FIELDS)?.required_string("message", |text| MessageText::parse(text.into_owned()))
}
