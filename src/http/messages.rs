//! The getting-started call: `sendMessage`.

use axum::extract::State;
use axum::http::StatusCode;

use super::auth::Caller;
use super::error::ApiError;
use super::idempotency::{self, Idempotency};
use super::input::JsonBody;
use super::json::{Fields, Response};
use super::operations::Operation;
use super::state::Api;
use crate::domain::{Message, MessageText};
use crate::store::{StoredResponse, WriteKey};

/// Handles `sendMessage`.
pub async fn send(
    State(api): State<Api>,
    caller: Caller,
    key: Idempotency,
    body: JsonBody,
) -> Result<Response, ApiError> {
    let message = Message::new(caller.account, parse_message(body.text())?, api.clock.now());
    let request = key.request(&api, &caller, Operation::SendMessage, body.text())?;
    let key = request.map(|request| WriteKey::new(request, accepted));
    let outcome = api.store.create_message(message, key).await?;
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
