//! The getting-started call: `sendMessage`.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::auth::Caller;
use super::error::ApiError;
use super::idempotency::{self, Idempotency};
use super::input::JsonBody;
use super::json::{self, Fields};
use super::openapi::schema;
use super::state::Api;
use crate::domain;
use crate::domain::{Answer, MessageText};

/// A message, as it was taken on.
#[derive(serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Message {
    /// Identifier of the message: `msg_` and a UUIDv7 without hyphens.
    #[schema(pattern = "^msg_[0-9a-f]{32}$")]
    pub id: String,
    /// The message text that was sent.
    #[schema(min_length = 1, max_length = 10_000)]
    pub message: String,
    /// Processing status; `queued` is the one there is now.
    #[schema(value_type = String)]
    pub status: &'static str,
    /// Creation time, in UTC with milliseconds (ISO 8601).
    #[schema(format = DateTime)]
    pub created_at: String,
}

/// Send a message
///
/// The message is queued, and durable, when the answer is sent.
#[utoipa::path(
    post, path = "/messages", operation_id = "sendMessage", tag = "messages",
    request_body(content = schema::NewMessage, example = json!({"message": "Hello, store!"})),
    responses((
        status = 202, description = "The message was taken on.", body = Message,
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
    let message = domain::Message::new(caller.account, parse_message(body.text())?, api.clock.now());
    match key.request(&api, &caller, "sendMessage", body.text())? {
        None => {
            api.store.create_message(message.clone()).await?;
            Ok(idempotency::response(queued(message)))
        }
        Some(request) => {
            let answer = queued(message.clone());
            idempotency::respond(api.store.create_message_once(request, message, answer).await?, |never| match never {})
        }
    }
}

/// The answer to who has sent `message`.
fn queued(message: domain::Message) -> Answer {
    let shown = Message {
        id: message.id.to_string(),
        message: message.text.into_string(),
        status: domain::Message::QUEUED,
        created_at: message.created_at.to_string(),
    };
    Answer::json(StatusCode::ACCEPTED.as_u16(), json::encode(&shown))
}

/// Reads the text of a message to send from its JSON.
pub fn parse_message(text: &str) -> Result<MessageText, ApiError> {
    Fields::parse(text, ["message"])?.required_string("message", |text| MessageText::parse(text.into_owned()))
}
