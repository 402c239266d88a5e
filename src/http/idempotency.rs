//! `Idempotency-Key` (draft-ietf-httpapi-idempotency-key-header): a repeated request is carried out once.

use std::time::Duration;

use axum::http::header::LOCATION;
use axum::http::{HeaderName, HeaderValue, StatusCode};

use super::error::{ApiError, Code};
use super::response::{self, Response};
use crate::clock::Clock;
use crate::store::{Outcome, Store, StoredResponse};

pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
pub const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// Number of expired responses deleted per transaction, the pause between two transactions, and the pause once no
/// expired response is left.
const STEP: u32 = 256;
const PAUSE: Duration = Duration::from_millis(20);
const REST: Duration = Duration::from_secs(30);

/// Makes the response to a write. `executed` renders its result.
pub fn respond<T, R: Into<ApiError>>(
    outcome: Outcome<T, R>,
    executed: impl FnOnce(&T) -> StoredResponse,
) -> Result<Response, ApiError> {
    match outcome {
        Outcome::Executed(value) => Ok(of_stored(executed(&value))),
        Outcome::Replayed(stored) => {
            let mut response = of_stored(stored);
            response.headers_mut().insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
            Ok(response)
        }
        Outcome::Refused(refusal) => Err(refusal.into()),
        Outcome::KeyMismatch => {
            Err(ApiError::new(Code::IdempotencyKeyReused, "This `Idempotency-Key` was used for another request."))
        }
        Outcome::InProgress => Err(in_progress()),
    }
}

/// The error for a repeated request whose first execution has not finished.
pub fn in_progress() -> ApiError {
    ApiError::new(Code::Conflict, "A request with this `Idempotency-Key` is still in progress. Try again later.")
        .with_header("retry-after", "1")
}

fn of_stored(stored: StoredResponse) -> Response {
    let status = StatusCode::from_u16(stored.status).expect("stored responses have a valid status");
    let mut response = response::json(status, stored.body);
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
    use crate::domain::{Email, IdempotencyKey, KeyedRequest, Message, MessageIds, MessageText, NewAccount, Timestamp};
    use crate::store::WriteKey;
    use crate::store::sqlite::{Options, Sqlite};

    #[tokio::test]
    async fn expired_responses_are_deleted_in_steps() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::Sqlite(Sqlite::open(&Options::new(folder.path())).unwrap());
        let (then, now) = (Timestamp::from_milliseconds(0), Timestamp::from_milliseconds(86_400_000));
        let account = store
            .create_account(NewAccount::customer(Email::parse("ada@example.com").unwrap(), None, then))
            .await
            .unwrap()
            .unwrap();
        let keys: Vec<_> = (0..2 * STEP + 1).map(|n| (n.to_string(), then)).chain([("new".into(), now)]).collect();
        join_all(keys.iter().map(|(key, at)| {
            let key = IdempotencyKey::parse(key.as_bytes()).unwrap();
            let request = KeyedRequest::new(account, "sendMessage", &key, "/v1/messages", "{}", *at);
            let message =
                Message::new(&MessageIds::default(), account, MessageText::parse("Hello".into()).unwrap(), *at);
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
