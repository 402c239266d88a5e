//! The getting-started call: `sendMessage`.

use axum::extract::State;
use axum::http::StatusCode;

use super::auth::Caller;
use super::error::ApiError;
use super::idempotency::{self, Idempotency};
use super::input::JsonBody;
use super::json::{Fields, Response};
use super::openapi::schema;
use super::state::Api;
use crate::domain::{Answer, Message, MessageText};

/// Send a message
///
/// The message is queued, and durable, when the answer is sent.
#[utoipa::path(
    post, path = "/messages", operation_id = "sendMessage", tag = "messages",
    request_body(content = schema::NewMessage, example = json!({"message": "Hello, store!"})),
    responses((
        status = 202, description = "The message was taken on.", body = schema::Message,
        example = json!({
            "id": "msg_0199c2f0a1b47c3d8e5f60718293a4b5", "message": "Hello, store!",
            "status": "queued", "createdAt": "2026-11-20T09:30:00.123Z"
        })
    ))
)]
pub async fn send(
    State(api): State<Api>,
    caller: Caller,
    key: Idempotency,
    body: JsonBody,
) -> Result<Response, ApiError> {
    let message = Message::new(caller.account, parse_message(body.text())?, api.clock.now());
    let answer = Answer::json(StatusCode::ACCEPTED.as_u16(), message.to_json());
    let response = match key.request(&api, &caller, "sendMessage", body.text())? {
        None => {
            api.store.create_message(message).await?;
            Ok(idempotency::response(answer))
        }
        Some(request) => {
            idempotency::respond(api.store.create_message_once(request, message, answer).await?, |never| match never {})
        }
    };
    if let Some(relay) = api.relay() {
        relay.message_taken_on();
    }
    response
}

/// Reads the text of a message to send from its JSON.
pub fn parse_message(text: &str) -> Result<MessageText, ApiError> {
    Fields::parse(text, ["message"])?.required_string("message", |text| MessageText::parse(text.into_owned()))
}
