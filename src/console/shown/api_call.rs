//! API calls made by pages. Each is shown with its response, so that users can learn the API from the console. The
//! API's own handlers respond, for the account that is signed in.

use askama::Template;
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, Request, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};

use super::sample_request::SampleRequest;
use crate::api::caller::Caller;
use crate::api::input::idempotency::IDEMPOTENT_REPLAYED;
use crate::api::prefer::delivery::{Called, Delivery};
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
    pub body: String,
    /// True if this replays the response to an earlier request with the same `Idempotency-Key`.
    is_replayed: bool,
    simulated: Option<Box<Delivery>>,
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
        let shown = SampleRequest::get(address(who, operation, &target));
        Some(Self::new(shown, call(who, operation, Request::get(target), "").await).await)
    }

    /// Returns the request that a form will send to an operation. `fields` are those that must be filled in.
    pub fn unsent(
        who: &SignedIn,
        operation: Operation,
        key: &RequestKey,
        form: &Form,
        fields: &[&str],
        body: &serde_json::Value,
    ) -> Unsent {
        let url = address(who, operation, &operation.path_of(None));
        let headers =
            vec![("Idempotency-Key", key.as_str().to_owned()), ("Content-Type", "application/json".to_owned())];
        let request = SampleRequest { method: "POST", url, headers, body: body.to_string(), is_live: true };
        Unsent {
            request,
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
        body: &str,
        fields: &Form,
    ) -> Self {
        let target = operation.path_of(id);
        let mut headers = vec![("Idempotency-Key", key.as_str().to_owned())];
        if !body.is_empty() {
            headers.push(("Content-Type", "application/json".to_owned()));
        }
        match simulation::chosen(fields) {
            "" => {}
            preference => headers.push(("Prefer", preference.to_owned())),
        }
        let url = address(who, operation, &target);
        let shown = SampleRequest { method: "POST", url, headers, body: body.to_owned(), is_live: false };

        let headers = shown.headers.iter();
        let request = headers.fold(Request::post(target), |request, (name, value)| request.header(*name, value));
        let called = call(who, operation, request, body).await;
        Self::new(shown, called).await
    }

    async fn new(request: SampleRequest, Called { response, delivery: simulated }: Called) -> Self {
        let (mut head, body) = response.into_parts();
        let mut text = format!("HTTP/1.1 {}\n", head.status);
        for (name, value) in &head.headers {
            text.push_str(&format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes())));
        }
        let Ok(body) = body.collect().await;
        let body = String::from_utf8_lossy(&body.to_bytes()).into_owned();
        text.push('\n');
        text.push_str(&body);
        if simulated.as_ref().is_some_and(|simulated| simulated.dropped.is_some()) {
            text = "The connection was closed without a response.".to_owned();
        }
        let is_replayed = head.headers.contains_key(IDEMPOTENT_REPLAYED);
        let (cause, retry_after) = (head.extensions.remove(), head.headers.remove(RETRY_AFTER));
        Self { request, answer: text, status: head.status, body, is_replayed, simulated, cause, retry_after }
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
            _ if self.is_unknown() => {
                format!("{}The result is unknown. Send the form again: it counts only once.", self.origin())
            }
            _ => {
                let error: serde_json::Value = serde_json::from_str(&self.body).unwrap_or_default();
                let message = error["message"].as_str().unwrap_or_default().replace('`', "");
                format!("{}{not_done} {message}", self.origin())
            }
        }
    }

    /// Returns the first sentence about a failure if it is simulated, otherwise nothing.
    pub const fn origin(&self) -> &'static str {
        if self.simulated.is_none() { "" } else { "This failure is simulated. " }
    }

    /// True if the caller cannot know whether the request was executed.
    pub fn is_unknown(&self) -> bool {
        self.status.is_server_error() || self.simulated.as_ref().is_some_and(|simulated| simulated.dropped.is_some())
    }

    /// Returns a page that shows the call, if there was one, with the `Retry-After` of its response and the cause of
    /// its error. A page that shows a simulated failure is a success, which alerts must not count as a failure.
    pub fn page(status: StatusCode, template: &impl Template, shown: Option<&Self>) -> axum::response::Response {
        if shown.is_some_and(|shown| shown.simulated.is_some()) {
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

/// Calls an operation as the user who is signed in.
async fn call(who: &SignedIn, operation: Operation, request: axum::http::request::Builder, body: &str) -> Called {
    let request = request.body(Full::new(Bytes::from(body.to_owned()))).expect("our requests are well-formed");
    let (head, mut body) = request.into_parts();
    let mut caller = Caller::signed_in(who.session.account, who.session.role, &who.client);
    let called = dispatch::call(operation, who.api(), &head, &mut body, &mut caller).await;
    if let Some(delivery) = &called.delivery {
        delivery.wait().await;
    }
    called
}

/// Returns the URL of a path by which the user reaches an operation.
fn address(who: &SignedIn, operation: Operation, path: &str) -> String {
    format!("{}{path}", who.addresses.base_url_of(operation.listener()).root())
}
