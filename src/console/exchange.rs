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
        let target = format!("/pets?{query}");
        let answer = match self::query(&target).await {
            Ok(query) => pets::list(State(api.clone()), Caller { account }, query).await,
            Err(error) => Err(error),
        };
        Self::new(get(&api.addresses.base_url.path(&target)), answer).await
    }

    /// `GET /store/orders` with this query, without its question mark.
    pub async fn list_orders(api: &Api, account: AccountId, query: &str) -> Self {
        let target = format!("/store/orders?{query}");
        let answer = match self::query(&target).await {
            Ok(query) => orders::list(State(api.clone()), Caller { account }, query).await,
            Err(error) => Err(error),
        };
        Self::new(get(&api.addresses.base_url.path(&target)), answer).await
    }

    /// `POST /store/orders` with this body.
    pub async fn place_order(api: &Api, account: AccountId, body: &str) -> Self {
        let curl = post(&api.addresses.base_url.path("/store/orders"), body);
        let answer = match json(body).await {
            Ok(body) => orders::place(State(api.clone()), Caller { account }, Idempotency::NONE, body).await,
            Err(error) => Err(error),
        };
        Self::new(curl, answer).await
    }

    /// `POST /store/orders/{id}/approve`, or another step.
    pub async fn step_order(api: &Api, account: AccountId, id: i64, step: OrderStep) -> Self {
        let address = api.addresses.base_url.path(&format!("/store/orders/{id}/{}", step.as_str()));
        let curl = format!("curl -i -X POST '{address}' \\\n  -H \"Authorization: Bearer $KEY\"");
        let answer = match json("").await {
            Ok(body) => {
                let (api, caller, id) = (State(api.clone()), Caller { account }, OrderId(Some(id)));
                match step {
                    OrderStep::Approve => orders::approve(api, caller, id, Idempotency::NONE, body).await,
                    OrderStep::Deliver => orders::deliver(api, caller, id, Idempotency::NONE, body).await,
                    OrderStep::Cancel => orders::cancel(api, caller, id, Idempotency::NONE, body).await,
                }
            }
            Err(error) => Err(error),
        };
        Self::new(curl, answer).await
    }

    /// `POST /pets` with this body.
    pub async fn create_pet(api: &Api, account: AccountId, body: &str) -> Self {
        let curl = post(&api.addresses.base_url.path("/pets"), body);
        let answer = match by(api, account, body).await {
            Ok((caller, body)) => pets::create(State(api.clone()), caller, Idempotency::NONE, body).await,
            Err(error) => Err(error),
        };
        Self::new(curl, answer).await
    }

    /// `POST /messages` with this body.
    pub async fn send_message(api: &Api, account: AccountId, body: &str) -> Self {
        let curl = post(&api.addresses.messages_base_url.path("/messages"), body);
        let answer = match by(api, account, body).await {
            Ok((caller, body)) => messages::send(State(api.clone()), caller, Idempotency::NONE, body).await,
            Err(error) => Err(error),
        };
        Self::new(curl, answer).await
    }

    async fn new(curl: String, answer: Result<impl IntoResponse, ApiError>) -> Self {
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

/// What a page sends counts against the account's rate limit as a program's requests do: a form is no way around it.
/// Looking at pages does not count, so that a person can see what a program that has used it up is doing.
async fn by(api: &Api, account: AccountId, body: &str) -> Result<(Caller, JsonBody), ApiError> {
    if let Some(limits) = &api.rate_limits {
        limits.admit(account, &Extensions::new())?;
    }
    Ok((Caller { account }, json(body).await?))
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

fn post(address: &str, body: &str) -> String {
    let body = body.replace('\'', r"'\''");
    format!(
        "curl -i '{address}' \\\n  -H \"Authorization: Bearer $KEY\" \\\n  -H 'Content-Type: application/json' \\\n  -d '{body}'"
    )
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
