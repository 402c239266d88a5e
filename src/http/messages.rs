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
use crate::domain::{Answer, Message, MessageText};

/// Handles `sendMessage`.
pub async fn send(
    State(api): State<Api>,
    caller: Caller,
    key: Idempotency,
    body: JsonBody,
) -> Result<Response, ApiError> {
    let message = Message::new(caller.account, parse_message(body.text())?, api.clock.now());
    let answer = Answer::json(StatusCode::ACCEPTED.as_u16(), message.to_json());
    let response = match key.request(&api, &caller, Operation::SendMessage, body.text())? {
        None => {
            api.store.create_message(message).await?;
            Ok(idempotency::response(answer))
        }
        Some(request) => {
            idempotency::respond(api.store.create_message_once(request, message, answer).await?, |never| match never {})
        }
    };
    if let Some(relay) = api.relay() {
        relay.message_queued();
    }
    response
}

/// Reads the text of a message to send from its JSON.
pub fn parse_message(text: &str) -> Result<MessageText, ApiError> {
    Fields::parse(text, ["message"])?.required_string("message", |text| MessageText::parse(text.into_owned()))
}
