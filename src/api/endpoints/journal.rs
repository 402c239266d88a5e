//! The journal: the requests of a key's account, for tests to read. On the operations listener, on staging only.

use std::sync::Arc;

use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode};
use serde_json::{Value, json};

use crate::api::caller::{self, presented_key};
use crate::api::error::ApiError;
use crate::api::input::pagination::number;
use crate::api::input::query_and_body::parameters;
use crate::api::operations::Operation;
use crate::api::recorder::record::{RecordedRequest, RedactedText};
use crate::api::response::{self, Response};
use crate::api::state::Api;
use crate::domain::api_key::KeyGrant;
use crate::domain::{AccountId, ApiKey, IdempotencyKey, Invalid, Timestamp};

/// Number of requests that are no longer kept.
const REQUESTS_DROPPED: HeaderName = HeaderName::from_static("requests-dropped");

/// Responds with the requests, oldest first.
pub async fn list(api: &Api, head: &Parts) -> Result<Response, ApiError> {
    let account = authenticate(api, head).await?;
    let [operation, status, since, key] = parameters(head.uri.query(), ["operation", "status", "since", "keyId"])?;
    let of_api = || Invalid("must be an operation of the API, such as listPets".into());
    let operation = operation.map(|id| Operation::with_id(&id).ok_or_else(of_api)).transpose();
    let operation = operation.map_err(ApiError::invalid_value("operation"))?;
    let status = status.map(|text| number("status", &text)).transpose()?;
    let time = || Invalid("must be a time such as 2026-11-20T09:30:00.123Z".into());
    let since = since.map(|text| Timestamp::parse(&text).ok_or_else(time)).transpose();
    let since = since.map_err(ApiError::invalid_value("since"))?;
    let key = key.map(|text| number("keyId", &text)).transpose()?;
    let selects = move |request: &RecordedRequest| {
        operation.is_none_or(|operation| request.operation == Some(operation))
            && status.is_none_or(|status| request.status.map(i64::from) == Some(status))
            && since.is_none_or(|since| request.at >= since)
            && key.is_none_or(|key| request.owner.key.0 == key)
    };
    let kept = api.account_requests.of(account);
    // After the requests, so that one that is removed meanwhile counts.
    let dropped = api.account_requests.dropped(account);
    // On the workers, because this thread responds to health checks, and the JSON may have 16 MiB.
    let listed = api.workers.runtime.spawn(async move {
        let requests = kept.iter().rev().filter(|request| selects(request));
        Value::from_iter(requests.map(|request| shown(request))).to_string()
    });
    let listed = listed.await.map_err(|error| ApiError::internal(error.to_string()))?;
    let mut response = response::json(StatusCode::OK, listed);
    response.headers_mut().insert(REQUESTS_DROPPED, HeaderValue::from(dropped));
    Ok(response)
}

/// Deletes the requests.
pub async fn delete(api: &Api, head: &Parts) -> Result<Response, ApiError> {
    let account = authenticate(api, head).await?;
    let [] = parameters(head.uri.query(), [])?;
    api.account_requests.forget(account);
    let mut response = Response::default();
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}

/// Finds the account of the key. Uses the store on the workers only, because a disk that does not respond must not block
/// this listener.
async fn authenticate(api: &Api, head: &Parts) -> Result<AccountId, ApiError> {
    if !api.account_requests.keeps_all {
        return Err(ApiError::route_not_found());
    }
    let presented = presented_key(&head.headers)?;
    let hash = ApiKey::hash_presented(presented, api.store.deployment()).ok_or_else(caller::invalid)?;
    let store = Arc::clone(&api.store);
    let found =
        api.workers.check(async move { store.find_key(&hash).await }).await.map_err(ApiError::unavailable)??;
    let has_expired = |expiry| expiry <= api.clock.steady();
    let is_active = |key: &KeyGrant| !key.is_revoked && !key.expires_at.is_some_and(has_expired);
    let key = found.filter(is_active).ok_or_else(caller::invalid)?;
    if key.read_only && head.method == Method::DELETE {
        return Err(caller::read_only());
    }
    Ok(key.account)
}

fn shown(request: &RecordedRequest) -> Value {
    let (method, path) = request.line.text.split_once(' ').unwrap_or_default();
    let text = |text: &RedactedText| text.shown();
    let message = |head, body: &Option<_>| json!({ "head": text(head), "body": body.as_ref().map(text) });
    let exchange = request.exchange.as_ref();
    let head = exchange.map_or("", |exchange| &*exchange.request_head.text);
    let idempotency_key = head.lines().find_map(|line| line.strip_prefix("idempotency-key: "));
    let idempotency_key = idempotency_key.and_then(|key| IdempotencyKey::parse(key.as_bytes()).ok());
    json!({
        "id": request.id,
        "time": request.at,
        "operation": request.operation.map(Operation::id),
        "method": method,
        "path": path,
        "status": request.status,
        "code": request.error.as_ref().map(|error| &error.code.text),
        "keyId": request.owner.key.0,
        "idempotencyKey": idempotency_key.as_ref().map(IdempotencyKey::as_str),
        "simulated": request.simulated.as_ref().map(text),
        "replayed": request.is_replayed,
        "incomplete": request.loss.get().is_some(),
        "durationMs": request.took.as_secs_f64() * 1_000.0,
        "requestId": request.request_id.text,
        "request": exchange.map(|exchange| message(&exchange.request_head, &exchange.request_body)),
        "response": exchange.map(|exchange| message(&exchange.response_head, &exchange.response_body)),
    })
}
