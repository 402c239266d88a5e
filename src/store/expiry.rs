//! Deletion of rows that have expired.

use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::sleep;

use super::Result;

/// Number of rows deleted per transaction, the pause between two transactions, and the pause once no expired row is left.
const STEP: u32 = 256;
const PAUSE: Duration = Duration::from_millis(20);
const REST: Duration = Duration::from_secs(10);

/// Deletes rows in transactions short enough not to delay other writes. `delete` deletes at most the given number of them
/// and returns the number deleted. The log calls them `rows`. Never returns.
pub async fn delete_expired<D: Future<Output = Result<u64>>>(rows: &str, delete: impl Fn(u32) -> D) {
    loop {
        let full = match delete(STEP).await {
            Ok(deleted) => deleted == u64::from(STEP),
            Err(error) => {
                // An aborted job ends here: it fails only because the store is closed.
                yield_now().await;
                tracing::warn!(%error, rows, "cannot delete expired rows, retrying");
                false
            }
        };
        sleep(if full { PAUSE } else { REST }).await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::future::join_all;
    use tokio::sync::Notify;
    use tokio::time::timeout;

    use super::*;
    use crate::domain::{
        Actor, Email, IdempotencyKey, KeyedRequest, Message, MessageIds, MessageText, NewAccount, Timestamp,
    };
    use crate::runtime::clock::Clock;
    use crate::store::sqlite::{Options, Sqlite, rows};
    use crate::store::{Store, StoredResponse, WriteKey};

    #[tokio::test(start_paused = true)]
    async fn full_steps_follow_each_other_without_a_rest() {
        let calls = Cell::new(0);
        let deletion = delete_expired("rows", async |limit| {
            calls.set(calls.get() + 1);
            Ok(if calls.get() < 3 { u64::from(limit) } else { 0 })
        });
        timeout(REST, deletion).await.unwrap_err();
        assert_eq!(calls.get(), 3);
    }

    #[tokio::test]
    async fn expired_responses_are_deleted_in_steps() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::Sqlite(Sqlite::open(&Options::new(folder.path())).unwrap());
        let (then, now) = (Timestamp::from_milliseconds(0), Timestamp::from_milliseconds(86_400_000));
        let account = store
            .create_account(
                NewAccount::customer(Email::parse("ada@example.com").unwrap(), None),
                Actor::command_line(then),
            )
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
            db.read(|conn| rows::first::<(u32,)>(conn, count, [])).unwrap().unwrap().0
        };
        assert_eq!(stored(), 2 * STEP + 2);

        let clock = Clock::fixed(now);
        // The system clock does not count, even two days ahead.
        clock.jump_to(now.plus(Duration::from_hours(48)));
        let done = Notify::new();
        let deletion = delete_expired("responses", async |limit| {
            let deleted = store.delete_expired_responses(clock.earlier(), limit).await;
            if stored() == 1 {
                done.notify_one();
            }
            deleted
        });
        tokio::select! {
            () = deletion => unreachable!("never returns"),
            done = timeout(Duration::from_secs(60), done.notified()) => done.expect("all are deleted"),
        }
        assert_eq!(stored(), 1);
        store.close().await;
    }
}
