//! `Idempotency-Key` (draft-ietf-httpapi-idempotency-key-header): a repeated request is carried out once.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::header::{LOCATION, RETRY_AFTER};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, StatusCode};

use super::auth::Caller;
use super::error::{ApiError, Code};
use super::json::{self, Response};
use super::operations::Operation;
use super::state::Api;
use crate::clock::Clock;
use crate::domain::{IdempotencyKey, Invalid, KeyedRequest};
use crate::store::{Outcome, Store, StoredResponse};

pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
pub const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// Number of expired responses deleted per transaction, the pause between two transactions, and the pause once no
/// expired response is left.
const STEP: u32 = 256;
const PAUSE: Duration = Duration::from_millis(20);
const REST: Duration = Duration::from_secs(30);

/// The `Idempotency-Key` of a request. Its value is validated after the body's size and media type.
pub struct Idempotency(Option<Header>);

struct Header {
    key: Result<IdempotencyKey, Invalid>,
    path: String,
}

impl<S: Sync> FromRequestParts<S> for Idempotency {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let mut values = parts.headers.get_all(IDEMPOTENCY_KEY).iter();
        let Some(first) = values.next() else { return Ok(Self(None)) };
        let key = match values.next() {
            None => IdempotencyKey::parse(first.as_bytes()),
            Some(_) => Err(Invalid("is given more than once".into())),
        };
        Ok(Self(Some(Header { key, path: parts.uri.path().to_owned() })))
    }
}

impl Idempotency {
    /// Returns the request as the store identifies it. `None` without a key. `body` is everything that `operation` reads
    /// besides the path.
    pub fn request(
        self,
        api: &Api,
        caller: &Caller,
        operation: Operation,
        body: &str,
    ) -> Result<Option<KeyedRequest>, ApiError> {
        let Some(Header { key, path }) = self.0 else { return Ok(None) };
        let key = key.map_err(|invalid| ApiError::invalid_value("Idempotency-Key", &invalid))?;
        Ok(Some(KeyedRequest::new(caller.account, operation.id(), &key, &path, body, api.clock.steady())))
    }
}

/// Makes the response to a write. `executed` renders its result.
pub fn respond<T, R: Into<ApiError>>(
    outcome: Outcome<T, R>,
    executed: impl FnOnce(&T) -> StoredResponse,
) -> Result<Response, ApiError> {
    match outcome {
        Outcome::Executed(value) => Ok(response(executed(&value))),
        Outcome::Replayed(stored) => {
            let mut response = response(stored);
            response.headers_mut().insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
            Ok(response)
        }
        Outcome::Refused(refusal) => Err(refusal.into()),
        Outcome::KeyMismatch => {
            Err(ApiError::new(Code::IdempotencyKeyReused, "This `Idempotency-Key` was used for another request."))
        }
        Outcome::InProgress => {
            let mut response = in_progress().answer();
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
            Ok(response)
        }
    }
}

/// The error for a repeated request whose first execution has not finished.
pub fn in_progress() -> ApiError {
    ApiError::new(Code::Conflict, "A request with this `Idempotency-Key` is still in progress. Try again later.")
}

fn response(stored: StoredResponse) -> Response {
    let status = StatusCode::from_u16(stored.status).expect("stored responses have a valid status");
    let mut response = json::answer(status, stored.body);
    if let Some(location) = stored.location {
        let location = HeaderValue::try_from(location).expect("an address has visible ASCII only");
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

/// Deletes expired responses, in transactions short enough not to delay other writes. Never returns.
pub async fn forget_expired(store: &Store, clock: &Clock) {
    loop {
        let full = match store.delete_expired_responses(clock.steady(), STEP).await {
            Ok(deleted) => deleted == u64::from(STEP),
            Err(error) => {
                tracing::warn!(%error, "cannot delete expired responses, retrying");
                false
            }
        };
        tokio::time::sleep(if full { PAUSE } else { REST }).await;
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;

    use super::*;
    use crate::domain::{Email, Message, MessageText, Timestamp};
    use crate::store::WriteKey;
    use crate::store::sqlite::{Options, Sqlite};

    #[tokio::test]
    async fn expired_responses_are_deleted_in_steps() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::Sqlite(Sqlite::open(&Options::new(folder.path())).unwrap());
        let (then, now) = (Timestamp::from_milliseconds(0), Timestamp::from_milliseconds(86_400_000));
        let account =
            store.create_account(Email::parse("ada@example.com").unwrap(), None, then).await.unwrap().unwrap();
        let keys: Vec<_> = (0..2 * STEP + 1).map(|n| (n.to_string(), then)).chain([("new".into(), now)]).collect();
        join_all(keys.iter().map(|(key, at)| {
            let key = IdempotencyKey::parse(key.as_bytes()).unwrap();
            let request = KeyedRequest::new(account, "sendMessage", &key, "/v1/messages", "{}", *at);
            let message = Message::new(account, MessageText::parse("Hello".into()).unwrap(), *at);
            let key = WriteKey::new(request, |_: &Message| StoredResponse::json(202, b"{}".to_vec()));
            store.create_message(message, Some(key))
        }))
        .await;
        let stored = || {
            let Store::Sqlite(db) = &store else { unreachable!() };
            let count = "SELECT count(*) FROM idempotency_records";
            db.read(|conn| Ok(conn.query_row(count, [], |row| row.get::<_, u32>(0))?)).unwrap()
        };
        assert_eq!(stored(), 2 * STEP + 2);

        let deleted = async {
            while stored() > 1 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let clock = Clock::fixed(now);
        // The system clock does not count, even two days ahead.
        clock.jump_to(now.plus(Duration::from_hours(48)));
        tokio::select! {
            () = forget_expired(&store, &clock) => unreachable!("never returns"),
            done = tokio::time::timeout(Duration::from_secs(10), deleted) => done.expect("no long pause before all are deleted"),
        }
        assert_eq!(stored(), 1);
        store.close().await;
    }
}
