//! A request of the API and its answer, shown so that the API can be learnt from the page: the answer is given by the
//! API's own handlers, to the account that looks.

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{Extensions, StatusCode};
use axum::response::IntoResponse;
use http_body_util::BodyExt;

use crate::domain::{AccountId, OrderStep};
use crate::http::auth::Caller;
use crate::http::idempotency::Idempotency;
use crate::http::input::{JsonBody, Query};
use crate::http::json::Response;
use crate::http::orders::{self, OrderId};
use crate::http::{Api, ApiError, messages, pets};

/// A call of the API as text.
pub struct Exchange {
    /// A line for a shell, where `$KEY` is an API key.
    pub curl: String,
    /// The answer as HTTP writes it: status, headers, body.
    pub answer: String,
    pub status: StatusCode,
    /// The answer's body alone.
    pub body: String,
}

impl Exchange {
    /// `GET /pets` with this query, without its question mark.
    pub async fn list_pets(api: &Api, account: AccountId, query: &str) -> Self {
        Self::look(api, account, &format!("/pets?{query}"), pets::list).await
    }

    /// `GET /store/orders` with this query, without its question mark.
    pub async fn list_orders(api: &Api, account: AccountId, query: &str) -> Self {
        Self::look(api, account, &format!("/store/orders?{query}"), orders::list).await
    }

    /// `POST /pets` with this body.
    pub async fn create_pet(api: &Api, account: AccountId, body: &str) -> Self {
        Self::send(api, account, &api.addresses.base_url.path("/pets"), body, pets::create).await
    }

    /// `POST /messages` with this body.
    pub async fn send_message(api: &Api, account: AccountId, body: &str) -> Self {
        Self::send(api, account, &api.addresses.messages_base_url.path("/messages"), body, messages::send).await
    }

    /// `POST /store/orders` with this body.
    pub async fn place_order(api: &Api, account: AccountId, body: &str) -> Self {
        Self::send(api, account, &api.addresses.base_url.path("/store/orders"), body, orders::place).await
    }

    /// `POST /store/orders/{id}/approve`, or another step.
    pub async fn step_order(api: &Api, account: AccountId, id: i64, step: OrderStep) -> Self {
        let address = api.addresses.base_url.path(&format!("/store/orders/{id}/{}", step.as_str()));
        let id = OrderId(Some(id));
        let operation = async move |api: State<Api>, caller: Caller, key: Idempotency, body: JsonBody| match step {
            OrderStep::Approve => orders::approve(api, caller, id, key, body).await,
            OrderStep::Deliver => orders::deliver(api, caller, id, key, body).await,
            OrderStep::Cancel => orders::cancel(api, caller, id, key, body).await,
        };
        Self::send(api, account, &address, "", operation).await
    }

    /// What every list goes through. Looking does not count against the account's rate limit, so that a person can see
    /// what a program that has used it up is doing.
    async fn look<F>(
        api: &Api,
        account: AccountId,
        target: &str,
        operation: impl FnOnce(State<Api>, Caller, Query) -> F,
    ) -> Self
    where
        F: Future<Output = Result<Response, ApiError>>,
    {
        let answer = match query(target).await {
            Ok(query) => operation(State(api.clone()), Caller { account }, query).await,
            Err(error) => Err(error),
        };
        Self::new(get(&api.addresses.base_url.path(target)), answer).await
    }

    /// What every form goes through. It counts against the account's rate limit as a program's request does: a form is
    /// no way around it.
    async fn send<F>(
        api: &Api,
        account: AccountId,
        address: &str,
        body: &str,
        operation: impl FnOnce(State<Api>, Caller, Idempotency, JsonBody) -> F,
    ) -> Self
    where
        F: Future<Output = Result<Response, ApiError>>,
    {
        let answer = async {
            if let Some(limits) = &api.rate_limits {
                limits.admit(account, &Extensions::new())?;
            }
            operation(State(api.clone()), Caller { account }, Idempotency::NONE, json(body).await?).await
        };
        Self::new(post(address, body), answer.await).await
    }

    async fn new(curl: String, answer: Result<Response, ApiError>) -> Self {
        let (head, body) = answer.into_response().into_parts();
        let mut text = format!("HTTP/1.1 {}\n", head.status);
        for (name, value) in &head.headers {
            text.push_str(&format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes())));
        }
        let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let body = String::from_utf8_lossy(&body).into_owned();
        text.push('\n');
        text.push_str(&body);
        Self { curl, answer: text, status: head.status, body }
    }
}

async fn query(target: &str) -> Result<Query, ApiError> {
    let (mut parts, ()) = Request::builder().uri(target).body(()).expect("our queries are well-formed").into_parts();
    Query::from_request_parts(&mut parts, &()).await
}

async fn json(body: &str) -> Result<JsonBody, ApiError> {
    let request = Request::post("/").header(CONTENT_TYPE, "application/json").body(Body::from(body.to_owned()));
    JsonBody::from_request(request.expect("it has nothing to refuse"), &()).await
}

fn get(address: &str) -> String {
    format!("curl -i '{address}' \\\n  -H \"Authorization: Bearer $KEY\"")
}

/// An empty body is none.
fn post(address: &str, body: &str) -> String {
    if body.is_empty() {
        return format!("curl -i -X POST '{address}' \\\n  -H \"Authorization: Bearer $KEY\"");
    }
    let body = body.replace('\'', r"'\''");
    let type_ = "-H 'Content-Type: application/json'";
    format!("{} \\\n  {type_} \\\n  -d '{body}'", get(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quote_in_a_body_does_not_end_the_shells() {
        let line = post("http://a/v1/pets", r#"{"name":"O'Malley"}"#);
        assert!(line.ends_with(r#"-d '{"name":"O'\''Malley"}'"#), "{line}");
    }
}
