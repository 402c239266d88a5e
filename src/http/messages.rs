//! The getting-started call: `sendMessage`.

use axum::extract::State;
use axum::http::StatusCode;

use super::auth::Caller;
use super::error::ApiError;
use super::input::JsonBody;
use super::json::{self, Fields, Response};
use super::openapi::schema;
use super::state::Api;
use crate::domain::{Message, MessageText};

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
pub async fn send(State(api): State<Api>, caller: Caller, body: JsonBody) -> Result<Response, ApiError> {
    let fields = Fields::parse(body.text(), ["message"])?;
    let text = fields.required_string("message", |text| MessageText::parse(text.into_owned()))?;
    let message = Message::new(caller.account, text, api.clock.now());
    api.store.create_message(message.clone()).await?;
    Ok(json::answer(StatusCode::ACCEPTED, message.to_json()))
}
