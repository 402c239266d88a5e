//! The messages page: send a message, list the account's own.

use askama::Template;
use axum::http::{StatusCode, Uri};
use axum::response::Response;

use super::api_call::ApiCall;
use super::current_user::SignedIn;
use super::error::PageError;
use super::form::{Field, Form};
use super::layout::Site;
use super::request_key::RequestKey;
use super::simulation;
use super::times::moment;
use crate::domain::{Message, MessageId, MessageText, Timestamp};
use crate::http::Operation;

/// Number of messages on a page, and of characters of each: the longest have 10,000.
const PAGE: u32 = 10;
const SHOWN: usize = 280;

#[derive(Template)]
#[template(path = "console/messages.html")]
struct List<'a> {
    site: Site<'a>,
    text: Field,
    key: RequestKey,
    api_call: Option<ApiCall>,
    messages: Vec<Row>,
    /// The last message on the page. `None` if there are no older ones.
    older: Option<String>,
    is_first: bool,
}

/// A message as the page shows it.
struct Row {
    id: String,
    text: String,
    is_cut: bool,
    created: String,
    status: &'static str,
}

impl Row {
    fn new(message: &Message, sent_at: Option<Timestamp>) -> Self {
        let text = message.text.as_str();
        let end = text.char_indices().nth(SHOWN).map(|(end, _)| end);
        Self {
            id: message.id.to_string(),
            text: text[..end.unwrap_or(text.len())].to_owned(),
            is_cut: end.is_some(),
            created: moment(message.created_at),
            status: Message::status(sent_at),
        }
    }
}

pub async fn list(who: SignedIn, uri: Uri) -> Result<Response, PageError> {
    let before = MessageId::parse(Form::of_query(&uri).get("before"));
    show(&who, StatusCode::OK, before, Field::default(), RequestKey::generate(), None).await
}

pub async fn send(who: SignedIn, fields: Form) -> Result<Response, PageError> {
    // Browsers send a line break as two characters (HTML standard, section 4.10.22.4), but the user typed one.
    let mut text = Field::new(fields.get("message").replace("\r\n", "\n"));
    let key = RequestKey::of(&fields);
    let Some(parsed) = text.parse("Enter a message.", "The message", MessageText::parse) else {
        return show(&who, StatusCode::UNPROCESSABLE_ENTITY, None, text, key, None).await;
    };
    let body = serde_json::json!({ "message": parsed.as_str() });
    let api_call = ApiCall::post_preferring(
        &who,
        Operation::SendMessage,
        None,
        &key,
        &body.to_string(),
        simulation::chosen(&fields),
    )
    .await;
    let text = if api_call.status.is_success() { Field::default() } else { text };
    show(&who, api_call.status, None, text, key.after(api_call.status), Some(api_call)).await
}

async fn show(
    who: &SignedIn,
    status: StatusCode,
    before: Option<MessageId>,
    text: Field,
    key: RequestKey,
    api_call: Option<ApiCall>,
) -> Result<Response, PageError> {
    let (messages, more) = who.api().store.list_messages_of(who.session.account, before, PAGE).await?;
    let messages: Vec<Row> = messages.iter().map(|(message, sent_at)| Row::new(message, *sent_at)).collect();
    let older = messages.last().filter(|_| more).map(|last| last.id.clone());
    let site = Site::new(who, "Messages", "messages");
    let list = List { site, text, key, api_call, messages, older, is_first: before.is_none() };
    Ok(ApiCall::page(status, &list, list.api_call.as_ref()))
}
