//! The getting-started call: `sendMessage`.

use axum::extract::State;
use axum::http::StatusCode;

use super::auth::Caller;
use super::error::ApiError;
use super::input::JsonBody;
use super::json::{self, Fields, Response};
use super::openapi::schema;
use super::state::Api;
use crate::domain;
use crate::domain::MessageText;

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
pub async fn send(State(api): State<Api>, caller: Caller, body: JsonBody) -> Result<Response, ApiError> {
    let fields = Fields::parse(body.text(), ["message"])?;
    let text = fields.required_string("message", |text| MessageText::parse(text.into_owned()))?;
    let message = domain::Message::new(caller.account, text, api.clock.now());
    api.store.create_message(message.clone()).await?;
    let answer = Message {
        id: message.id.to_string(),
        message: message.text.into_string(),
        status: domain::Message::QUEUED,
        created_at: message.created_at.to_string(),
    };
    Ok(json::answer_value(StatusCode::ACCEPTED, &answer))
}
