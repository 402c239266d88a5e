//! API calls made by pages. Each is shown with its response, so that users can learn the API from the console. The
//! API's own handlers respond, for the account that is signed in.

use askama::Template;
use axum::http::header::RETRY_AFTER;
use axum::http::response::Parts;
use axum::http::{HeaderValue, Request, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use serde_json::Value;

use super::sample_request::SampleRequest;
use crate::api::caller::Caller;
use crate::api::input::idempotency::IDEMPOTENT_REPLAYED;
use crate::api::{Cause, Operation, dispatch};
use crate::console::form::{Form, RequestKey, simulation};
use crate::console::page;
use crate::console::session::SignedIn;

/// An API call as text.
pub struct ApiCall {
    pub request: SampleRequest,
    /// The response as HTTP writes it: status, headers, body.
    pub answer: String,
    pub status: StatusCode,
    body: Bytes,
    /// True if this replays the response to an earlier request with the same `Idempotency-Key`.
    is_replayed: bool,
    is_simulated: bool,
    /// True if the caller cannot know whether the request was executed.
    pub is_unknown: bool,
    /// The cause of an error, for the log.
    cause: Option<Cause>,
    retry_after: Option<HeaderValue>,
}

/// The request that a form will send.
pub struct Unsent {
    pub request: SampleRequest,
    /// True if examples stand for empty fields.
    pub is_example: bool,
    /// True if the form was submitted with errors, so no request was sent.
    pub is_refused: bool,
}

impl ApiCall {
    /// Calls an operation that lists, with a query given without its question mark, if there is one.
    pub async fn list(who: &SignedIn, operation: Operation, query: Option<String>) -> Option<Self> {
        let target = format!("{}?{}", operation.path(), query?);
        let request = SampleRequest::get(address(who, operation, &target));
        Some(Self::send(who, operation, target, request).await)
    }

    /// Returns the request that a form will send to an operation. `fields` are those that must be filled in.
    pub fn unsent(
        who: &SignedIn,
        operation: Operation,
        key: &RequestKey,
        form: &Form,
        fields: &[&str],
        body: &Value,
    ) -> Unsent {
        let request = post_request(who, operation, &operation.path_of(None), key, body.to_string());
        Unsent {
            request: SampleRequest { is_live: true, ..request },
            is_example: fields.iter().any(|field| form.get(field).is_empty()),
            is_refused: form.has_errors(),
        }
    }

    /// Calls an operation that writes, as a program would: one that sends the same request, with a key of the same
    /// account, gets the same response. `body` is JSON, or empty if the operation takes none. `fields` are those of the
    /// form, which may choose a failure to simulate.
    ///
    /// Counts against the rate limit of the account as a program's request does, so that forms are no way around it.
    pub async fn post(
        who: &SignedIn,
        operation: Operation,
        id: Option<i64>,
        key: &RequestKey,
        body: String,
        fields: &Form,
    ) -> Self {
        let target = operation.path_of(id);
        let mut request = post_request(who, operation, &target, key, body);
        request.headers.extend(simulation::chosen(fields).map(|preference| ("Prefer", preference.to_owned())));
        Self::send(who, operation, target, request).await
    }

    /// Calls an operation as the user who is signed in. `target` has the path and query of the request.
    async fn send(who: &SignedIn, operation: Operation, target: String, request: SampleRequest) -> Self {
        let sent = Request::builder().method(request.method).uri(target);
        let sent = request.headers.iter().fold(sent, |sent, (name, value)| sent.header(*name, value));
        let sent = sent.body(Full::new(Bytes::from(request.body.clone()))).expect("our requests are well-formed");
        let (head, mut body) = sent.into_parts();
        let mut caller = Caller::signed_in(who.session.account, who.session.role, &who.client);
        let called = dispatch::call(operation, who.api(), &head, &mut body, &mut caller).await;
        if let Some(delivery) = &called.delivery {
            delivery.wait().await;
        }

        let (mut head, body) = called.response.into_parts();
        let Ok(body) = body.collect().await;
        let body = body.to_bytes();
        let is_lost = called.delivery.as_ref().is_some_and(|delivery| delivery.dropped.is_some());
        let answer = match is_lost {
            true => "The connection was closed without a response.".to_owned(),
            false => text(&head, &body),
        };
        Self {
            request,
            answer,
            status: head.status,
            body,
            is_replayed: head.headers.contains_key(IDEMPOTENT_REPLAYED),
            is_simulated: called.delivery.is_some(),
            is_unknown: is_lost || head.status.is_server_error(),
            cause: head.extensions.remove(),
            retry_after: head.headers.remove(RETRY_AFTER),
        }
    }

    /// Returns the body of the response. Null if it is not JSON.
    pub fn body(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Returns the outcome of a form for the user: `done`, or `not_done` and the reason.
    pub fn outcome(&self, done: &str, not_done: &str) -> String {
        match self.status {
            _ if self.is_replayed => "This form was sent twice and counts once. Nothing was changed this time.".to_owned(),
            status if status.is_success() => done.to_owned(),
            StatusCode::UNPROCESSABLE_ENTITY => {
                "Nothing was changed, because this form was already sent with different content. You can now send it again."
                    .to_owned()
            }
            _ if self.is_unknown => {
                format!("{}The result is unknown. Send the form again: it counts only once.", self.origin())
            }
            _ => {
                let message = self.body()["message"].as_str().unwrap_or_default().replace('`', "");
                format!("{}{not_done} {message}", self.origin())
            }
        }
    }

    /// Returns the first sentence about a failure if it is simulated, otherwise nothing.
    pub const fn origin(&self) -> &'static str {
        if self.is_simulated { "This failure is simulated. " } else { "" }
    }

    /// Returns a page that shows the call, if there was one, with the `Retry-After` of its response and the cause of
    /// its error. A page that shows a simulated failure is a success, which alerts must not count as a failure.
    pub fn page(status: StatusCode, template: &impl Template, shown: Option<&Self>) -> axum::response::Response {
        if shown.is_some_and(|shown| shown.is_simulated) {
            return page(StatusCode::OK, template);
        }
        let mut page = page(status, template);
        if let Some(retry_after) = shown.and_then(|shown| shown.retry_after.clone()) {
            page.headers_mut().insert(RETRY_AFTER, retry_after);
        }
        if let Some(cause) = shown.and_then(|shown| shown.cause.clone()) {
            page.extensions_mut().insert(cause);
        }
        page
    }
}

/// Returns the request by which a form calls an operation that writes.
fn post_request(who: &SignedIn, operation: Operation, target: &str, key: &RequestKey, body: String) -> SampleRequest {
    let mut headers = vec![("Idempotency-Key", key.as_str().to_owned())];
    if !body.is_empty() {
        headers.push(("Content-Type", "application/json".to_owned()));
    }
    SampleRequest { method: "POST", url: address(who, operation, target), headers, body, is_live: false }
}

/// Returns a response as HTTP writes it.
fn text(head: &Parts, body: &[u8]) -> String {
    let mut text = format!("HTTP/1.1 {}\n", head.status);
    for (name, value) in &head.headers {
        text.push_str(&format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes())));
    }
    text + "\n" + &String::from_utf8_lossy(body)
}

/// Returns the URL of a path by which the user reaches an operation.
fn address(who: &SignedIn, operation: Operation, path: &str) -> String {
    format!("{}{path}", who.addresses.base_url_of(operation.listener()).root())
}
