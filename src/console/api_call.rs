//! API calls made by pages. Each is shown with its response, so that users can learn the API from the console. The
//! API's own handlers respond, for the account that is signed in.

use askama::Template;
use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Request, State};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::IntoResponse;
use http_body_util::BodyExt;

use super::current_user::SignedIn;
use super::layout::page;
use super::request_key::RequestKey;
use crate::config::BaseUrl;
use crate::domain::Transition;
use crate::http::auth::Caller;
use crate::http::idempotency::{IDEMPOTENCY_KEY, IDEMPOTENT_REPLAYED, Idempotency};
use crate::http::input::{JsonBody, Query};
use crate::http::json::Response;
use crate::http::orders::{self, OrderId};
use crate::http::{Api, ApiError, Cause, messages, pets};

/// An API call as text.
pub struct ApiCall {
    /// A shell command, in which `$KEY` is an API key.
    pub curl: String,
    /// The response as HTTP writes it: status, headers, body.
    pub answer: String,
    pub status: StatusCode,
    /// The body of the response.
    pub body: String,
    /// Whether this replays the response to an earlier request with the same `Idempotency-Key`.
    pub is_replayed: bool,
    /// The cause of an error, for the log.
    cause: Option<Cause>,
    retry_after: Option<HeaderValue>,
}

impl ApiCall {
    /// Calls `GET /pets` with a query, given without its question mark.
    pub async fn list_pets(api: &Api, who: &SignedIn, query: &str) -> Self {
        Self::look(api, who, &format!("/pets?{query}"), pets::list).await
    }

    /// Calls `GET /store/orders` with a query, given without its question mark.
    pub async fn list_orders(api: &Api, who: &SignedIn, query: &str) -> Self {
        Self::look(api, who, &format!("/store/orders?{query}"), orders::list).await
    }

    /// Calls `POST /pets`.
    pub async fn create_pet(api: &Api, who: &SignedIn, key: &RequestKey, body: &str) -> Self {
        let post = Post { base_url: &who.user.addresses.base_url, path: "/pets", key, body };
        Self::send(api, who, post, pets::create).await
    }

    /// Calls `POST /messages`.
    pub async fn send_message(api: &Api, who: &SignedIn, key: &RequestKey, body: &str) -> Self {
        let post = Post { base_url: &who.user.addresses.messages_base_url, path: "/messages", key, body };
        Self::send(api, who, post, messages::send).await
    }

    /// Calls `POST /store/orders`.
    pub async fn place_order(api: &Api, who: &SignedIn, key: &RequestKey, body: &str) -> Self {
        let post = Post { base_url: &who.user.addresses.base_url, path: "/store/orders", key, body };
        Self::send(api, who, post, orders::place).await
    }

    /// Calls `POST /store/orders/{id}/approve`, or another step.
    pub async fn step_order(api: &Api, who: &SignedIn, key: &RequestKey, id: i64, step: Transition) -> Self {
        let path = format!("/store/orders/{id}/{}", step.as_str());
        let post = Post { base_url: &who.user.addresses.base_url, path: &path, key, body: "" };
        let id = OrderId(Some(id));
        let operation = async move |api: State<Api>, caller: Caller, key: Idempotency, body: JsonBody| match step {
            Transition::Approve => orders::approve(api, caller, id, key, body).await,
            Transition::Deliver => orders::deliver(api, caller, id, key, body).await,
            Transition::Cancel => orders::cancel(api, caller, id, key, body).await,
        };
        Self::send(api, who, post, operation).await
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
            status if status.is_server_error() => {
                "The result is unknown. Send the form again: it counts only once.".to_owned()
            }
            _ => {
                let error: serde_json::Value = serde_json::from_str(&self.body).unwrap_or_default();
                format!("{not_done} {}", error["message"].as_str().unwrap_or_default().replace('`', ""))
            }
        }
    }

    /// Returns a page that shows the call, if there was one, with the `Retry-After` of its response and the cause of
    /// its error.
    pub fn page(status: StatusCode, template: &impl Template, shown: Option<&Self>) -> axum::response::Response {
        let mut page = page(status, template);
        if let Some(retry_after) = shown.and_then(|shown| shown.retry_after.clone()) {
            page.headers_mut().insert(RETRY_AFTER, retry_after);
        }
        if let Some(cause) = shown.and_then(|shown| shown.cause.clone()) {
            page.extensions_mut().insert(cause);
        }
        page
    }

    /// Calls an operation that reads. Does not count against the rate limit of the account, so that users can see what
    /// a program that exhausted it is doing.
    async fn look<F>(
        api: &Api,
        who: &SignedIn,
        target: &str,
        operation: impl FnOnce(State<Api>, Caller, Query) -> F,
    ) -> Self
    where
        F: Future<Output = Result<Response, ApiError>>,
    {
        let answer = match query(target).await {
            Ok(query) => operation(State(api.clone()), Caller { account: who.session.account }, query).await,
            Err(error) => Err(error),
        };
        Self::new(get(&who.user.addresses.base_url.path(target)), answer.into_response()).await
    }

    /// Calls an operation that writes. Counts against the rate limit of the account as a program's request does, so
    /// that forms are no way around it.
    async fn send<F>(
        api: &Api,
        who: &SignedIn,
        post: Post<'_>,
        operation: impl FnOnce(State<Api>, Caller, Idempotency, JsonBody) -> F,
    ) -> Self
    where
        F: Future<Output = Result<Response, ApiError>>,
    {
        let quota = api.rate_limits.as_ref().map(|limits| (limits, limits.take(who.session.account)));
        let answer = async {
            if let Some((limits, quota)) = quota {
                limits.check(quota)?;
            }
            let (key, body) = post.read().await?;
            operation(State(api.clone()), Caller { account: who.session.account }, key, body).await
        };
        let mut answer = answer.await.into_response();
        if let Some((limits, quota)) = quota {
            limits.write_headers(quota, answer.headers_mut());
        }
        Self::new(post.curl(), answer).await
    }

    async fn new(curl: String, answer: axum::response::Response) -> Self {
        let (mut head, body) = answer.into_parts();
        let mut text = format!("HTTP/1.1 {}\n", head.status);
        for (name, value) in &head.headers {
            text.push_str(&format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes())));
        }
        let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let body = String::from_utf8_lossy(&body).into_owned();
        text.push('\n');
        text.push_str(&body);
        let is_replayed = head.headers.contains_key(IDEMPOTENT_REPLAYED);
        let (cause, retry_after) = (head.extensions.remove(), head.headers.remove(RETRY_AFTER));
        Self { curl, answer: text, status: head.status, body, is_replayed, cause, retry_after }
    }
}

/// A request that writes, as a program would send it. If a program sends it too, with a key of the same account, it
/// gets the same response.
struct Post<'a> {
    base_url: &'a BaseUrl,
    path: &'a str,
    key: &'a RequestKey,
    /// JSON. Empty if the operation takes no body.
    body: &'a str,
}

impl Post<'_> {
    /// Returns what the operation's extractors read.
    async fn read(&self) -> Result<(Idempotency, JsonBody), ApiError> {
        let request = Request::post(format!("/v1{}", self.path))
            .header(CONTENT_TYPE, "application/json")
            .header(IDEMPOTENCY_KEY, self.key.to_header())
            .body(Body::from(self.body.to_owned()));
        let (mut parts, body) = request.expect("our requests are well-formed").into_parts();
        let Ok(key) = Idempotency::from_request_parts(&mut parts, &()).await;
        Ok((key, JsonBody::from_request(Request::from_parts(parts, body), &()).await?))
    }

    fn curl(&self) -> String {
        let address = self.base_url.path(self.path);
        let key = format!("Idempotency-Key: {}", self.key.as_str());
        let (method, body) = match self.body {
            "" => ("-X POST ", String::new()),
            body => ("", format!("{NEXT}-H 'Content-Type: application/json'{NEXT}-d {}", quoted(body))),
        };
        format!("curl -i {method}'{address}'{NEXT}{AUTHORIZATION}{NEXT}-H {}{body}", quoted(&key))
    }
}

async fn query(target: &str) -> Result<Query, ApiError> {
    let (mut parts, ()) = Request::builder().uri(target).body(()).expect("our queries are well-formed").into_parts();
    Query::from_request_parts(&mut parts, &()).await
}

fn get(address: &str) -> String {
    format!("curl -i '{address}'{NEXT}{AUTHORIZATION}")
}

const AUTHORIZATION: &str = r#"-H "Authorization: Bearer $KEY""#;

/// Continues a shell command on the next line.
const NEXT: &str = " \\\n  ";

/// Quotes `text` for a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_escaped_for_the_shell() {
        assert_eq!(quoted(r#"{"name":"O'Malley"}"#), r#"'{"name":"O'\''Malley"}'"#);
    }
}
