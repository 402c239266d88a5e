//! The messages page: send a message, list the account's own.

use askama::Template;
use axum::http::{StatusCode, Uri};
use axum::response::Response;

use crate::api::Operation;
use crate::console::form::{Form, Links, Place, RequestKey, newest_first, pagination};
use crate::console::session::SignedIn;
use crate::console::shown::{ApiCall, Unsent, times};
use crate::console::{PageError, Site};
use crate::domain::{Invalid, Message, MessageId, MessageText, PageLimit, TrackedMessage};

/// Number of messages on a page, and of characters of each: the longest have 10,000.
const PAGE: i64 = 10;
const SHOWN: usize = 280;

#[derive(Template)]
#[template(path = "console/messages.html")]
struct List<'a> {
    site: Site<'a>,
    form: Form,
    key: RequestKey,
    sent: Option<ApiCall>,
    unsent: Unsent,
    messages: Vec<TrackedMessage>,
    links: Links<MessageId>,
    /// The request of the list. `None` after a form.
    listed: Option<ApiCall>,
}

/// Returns the beginning of a text, and whether it is cut.
fn beginning(text: &str) -> (&str, bool) {
    let end = text.char_indices().nth(SHOWN).map(|(end, _)| end);
    (&text[..end.unwrap_or(text.len())], end.is_some())
}

pub async fn list(who: SignedIn, uri: Uri) -> Result<Response, PageError> {
    let invalid = || Invalid("must be that of a message, such as msg_01978a4be2c07d3e8f5a6b7c8d9e0f10".into());
    let parse = |text: &str| MessageId::parse(text).ok_or_else(invalid);
    let place = Place::of(&Form::of_query(&uri), parse, MessageId::successor)?;
    show(&who, StatusCode::OK, place, Form::default(), RequestKey::generate(), None).await
}

pub async fn send(who: SignedIn, mut form: Form) -> Result<Response, PageError> {
    let key = RequestKey::of(&form);
    let parse = |text: String| MessageText::parse(with_line_feeds(&text));
    let Some(text) = form.parse("message", "Enter a message.", "The message", parse) else {
        return show(&who, form.status(), Place::FIRST, form, key, None).await;
    };
    let body = body(text.as_str()).to_string();
    let api_call = ApiCall::post(&who, Operation::SendMessage, None, &key, body, &form).await;
    let form = if api_call.status.is_success() { Form::default() } else { form };
    show(&who, api_call.status, Place::FIRST, form, key.after(api_call.status), Some(api_call)).await
}

async fn show(
    who: &SignedIn,
    status: StatusCode,
    place: Place<MessageId>,
    form: Form,
    key: RequestKey,
    sent: Option<ApiCall>,
) -> Result<Response, PageError> {
    let (store, account) = (&who.api().store, who.session.account);
    let read = |direction, after, limit| store.list_messages_of(account, direction, after, limit);
    let limit = PageLimit::new(PAGE).expect("a page may have ten messages");
    let (messages, links) = newest_first(place, limit, |(message, _): &TrackedMessage| message.id, read).await?;
    let query = pagination::as_api(&messages, &links, None, MessageId::predecessor);
    let listed = ApiCall::list(who, Operation::ListMessages, query.filter(|_| sent.is_none())).await;
    let site = Site::new(who, "Messages", "messages");
    let body = body(&with_line_feeds(form.or_example("message", "Hello, store!")));
    let unsent = ApiCall::unsent(who, Operation::SendMessage, &key, &form, &["message"], &body);
    let list = List { site, form, key, sent, unsent, messages, links, listed };
    Ok(ApiCall::page(status, &list, list.sent.as_ref().or(list.listed.as_ref())))
}

/// Replaces each CR LF by LF. Browsers send a line break as two characters (HTML standard, section 4.10.22.4), but the user
/// typed one.
fn with_line_feeds(text: &str) -> String {
    text.replace("\r\n", "\n")
}

/// The body of the API request.
fn body(message: &str) -> serde_json::Value {
    serde_json::json!({ "message": message })
}
