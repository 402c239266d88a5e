//! The getting-started call.

use axum::http::StatusCode;

use super::call::Call;
use super::error::ApiError;
use super::idempotency;
use super::json::Fields;
use super::response::Response;
use crate::domain::{Message, MessageText};
use crate::store::StoredResponse;

/// Handles `sendMessage`.
pub async fn send(call: &Call<'_>) -> Result<Response, ApiError> {
    let api = call.api;
    let message = Message::new(call.account, parse_message(&call.body)?, api.clock.now());
    let outcome = api.store.create_message(message, call.key(&accepted)?).await?;
    if let Some(relay) = api.relay() {
        relay.message_queued();
    }
    idempotency::respond(outcome, accepted)
}

/// The 202 response for `message`.
fn accepted(message: &Message) -> StoredResponse {
    StoredResponse::json(StatusCode::ACCEPTED.as_u16(), message.to_json())
}

/// Parses the body of `sendMessage`.
pub fn parse_message(text: &str) -> Result<MessageText, ApiError> {
    Fields::parse(text, ["message"])?.required_string("message", |text| MessageText::parse(text.into_owned()))
}
