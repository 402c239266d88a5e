//! `Idempotency-Key` (draft-ietf-httpapi-idempotency-key-header): a request that is sent again is carried out once.

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
use crate::domain::{Answer, IdempotencyKey, Invalid, KeyedRequest, Outcome};
use crate::store::Store;

pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
pub const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// How many answers are forgotten in one step, how long others may write before the next one, and how long to rest once
/// nothing is left.
const STEP: u32 = 256;
const PAUSE: Duration = Duration::from_millis(20);
const REST: Duration = Duration::from_secs(30);

/// The key of a request, where it has one. Every operation that changes something has this among its arguments, before
/// the one that reads the body; whether the value is right is asked once size and media type are.
pub struct Idempotency(Option<Given>);

struct Given {
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
        Ok(Self(Some(Given { key, path: parts.uri.path().to_owned() })))
    }
}

impl Idempotency {
    /// The request as the store knows it again, where it has a key. `body` is all that `operation` reads beside the path.
    pub fn request(
        self,
        api: &Api,
        caller: &Caller,
        operation: Operation,
        body: &str,
    ) -> Result<Option<KeyedRequest>, ApiError> {
        let Some(Given { key, path }) = self.0 else { return Ok(None) };
        let key = key.map_err(|invalid| ApiError::invalid_value("Idempotency-Key", &invalid))?;
        Ok(Some(KeyedRequest::new(caller.account, operation.id(), &key, &path, body, api.clock.steady())))
    }
}

/// The answer to a request with a key. `refused` says why an operation did not carry one out.
pub fn respond<R>(outcome: Outcome<R>, refused: impl FnOnce(R) -> ApiError) -> Result<Response, ApiError> {
    match outcome {
        Outcome::First(answer) => Ok(response(answer)),
        Outcome::Again(answer) => {
            let mut response = response(answer);
            response.headers_mut().insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
            Ok(response)
        }
        Outcome::Refused(refusal) => Err(refused(refusal)),
        Outcome::Reused => Err(reused()),
        Outcome::InProgress => {
            let mut response = in_progress().answer();
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
            Ok(response)
        }
    }
}

fn reused() -> ApiError {
    ApiError::new(Code::IdempotencyKeyReused, "This `Idempotency-Key` was used for another request.")
}

/// What to say where it is not known yet what becomes of the first request with a key.
pub fn in_progress() -> ApiError {
    ApiError::new(Code::Conflict, "A request with this `Idempotency-Key` is still in progress. Try again later.")
}

/// An answer, whether or not it is kept.
pub fn response(answer: Answer) -> Response {
    let status = StatusCode::from_u16(answer.status).expect("the status of an answer of ours");
    let mut response = json::answer(status, answer.body);
    if let Some(location) = answer.location {
        let location = HeaderValue::try_from(location).expect("an address has visible ASCII only");
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

/// Deletes answers that have expired, in steps that keep nobody waiting. Never ends.
pub async fn forget_expired(store: &Store, clock: &Clock) {
    loop {
        let full = match store.delete_expired_answers(clock.steady(), STEP).await {
            Ok(deleted) => deleted == u64::from(STEP),
            Err(error) => {
                tracing::warn!(%error, "answers that have expired could not be deleted yet");
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
    use crate::store::sqlite::{Options, Sqlite};

    #[tokio::test]
    async fn what_has_expired_is_forgotten_in_steps_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::Sqlite(Sqlite::open(&Options::new(folder.path())).unwrap());
        let (then, now) = (Timestamp::from_milliseconds(0), Timestamp::from_milliseconds(86_400_000));
        let account =
            store.create_account(Email::parse("ada@example.com").unwrap(), None, then).await.unwrap().unwrap();
        let answer = Answer { status: 202, location: None, body: b"{}".to_vec() };
        let keys: Vec<_> = (0..2 * STEP + 1).map(|n| (n.to_string(), then)).chain([("new".into(), now)]).collect();
        join_all(keys.iter().map(|(key, at)| {
            let key = IdempotencyKey::parse(key.as_bytes()).unwrap();
            let request = KeyedRequest::new(account, "sendMessage", &key, "/v1/messages", "{}", *at);
            let message = Message::new(account, MessageText::parse("Hello".into()).unwrap(), *at);
            store.create_message_once(request, message, answer.clone())
        }))
        .await;
        let kept = || {
            let Store::Sqlite(db) = &store else { unreachable!() };
            let count = "SELECT count(*) FROM idempotency_records";
            db.read(|conn| Ok(conn.query_row(count, [], |row| row.get::<_, u32>(0))?)).unwrap()
        };
        assert_eq!(kept(), 2 * STEP + 2);

        let emptied = async {
            while kept() > 1 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let clock = Clock::fixed(now);
        // A system clock that is two days ahead makes no difference.
        clock.jump_to(now.plus(Duration::from_hours(48)));
        tokio::select! {
            () = forget_expired(&store, &clock) => unreachable!("it never ends"),
            emptied = tokio::time::timeout(Duration::from_secs(10), emptied) => emptied.expect("it does not rest before"),
        }
        assert_eq!(kept(), 1);
        store.close().await;
    }
}
