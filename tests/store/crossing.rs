//! PostgreSQL: concurrent changes of one account by two processes.

use std::sync::Arc;
use std::time::Duration;

use petstore::domain::account::PasswordDigest;
use petstore::domain::api_key::Rotation;
use petstore::domain::{AccountId, ApiKey, KeyId};
use petstore::store::{Store, StoreError};
use testkit::postgres::{self, query, sessions, try_query};
use testkit::{TIMEOUT, within};

use crate::fixtures::{NOW, OPERATOR, account_with_password, digest, key, new_key, open_postgresql, session};

/// Inserts a session as another process does, with the account's row locked.
const BEGIN_SESSION: &str = "SELECT id FROM accounts WHERE id = 1 FOR SHARE;
    INSERT INTO sessions SELECT sha256('token'), 1, 1795167000123, 1795167000123";

const MAKE_KEY: &str = "INSERT INTO api_keys (account_id, name, hash, hint, created_at)
    VALUES (1, 'late', sha256('key'), 'pet_live_…late', 1795167000123)";

const DELETE_ACCOUNT: &str = "UPDATE accounts SET email_folded = 'deleted 1', password_hash = NULL, deleted_at = 1;
    DELETE FROM sessions; UPDATE api_keys SET revoked_at = 1";

/// Waits, for a minute at most, until another session waits for a lock.
const AWAIT_ANOTHER: &str = "DO $$ BEGIN FOR i IN 1..6000 LOOP
    PERFORM pg_stat_clear_snapshot(), pg_sleep(0.01);
    EXIT WHEN EXISTS (SELECT FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock');
    END LOOP; END $$";

#[tokio::test]
async fn deleting_an_account_includes_concurrently_created_rows() {
    let ada = Ada::new().await;
    let delete = ada.store.delete_account(ada.account, Some(ada.digest.clone()), OPERATOR);
    assert!(ada.beside(&format!("{BEGIN_SESSION}; {MAKE_KEY}"), delete).await.unwrap());
    assert_eq!(query(&ada.url, "SELECT count(*), count(revoked_at) FROM api_keys"), "2|2");
    assert_eq!(query(&ada.url, "SELECT count(*) FROM sessions"), "0");
}

#[tokio::test]
async fn suspension_ends_a_session_that_began_concurrently() {
    let ada = Ada::new().await;
    let suspend = ada.store.set_suspended(ada.account, true, OPERATOR);
    assert!(ada.beside(BEGIN_SESSION, suspend).await.unwrap());
    assert_eq!(query(&ada.url, "SELECT count(*) FROM sessions"), "0");
}

#[tokio::test]
async fn new_password_ends_a_session_that_began_concurrently() {
    let ada = Ada::new().await;
    let session = session(ada.account, NOW);
    let change = ada.store.change_password(session, ada.digest.clone(), digest("new"), OPERATOR);
    assert!(ada.beside(BEGIN_SESSION, change).await.unwrap());
    assert_eq!(query(&ada.url, "SELECT count(*) FROM sessions"), "1");
    assert!(ada.store.find_session(&session.hash).await.unwrap().is_some());
}

#[tokio::test]
async fn account_being_deleted_gets_no_key() {
    let ada = Ada::new().await;
    let key = new_key(&ApiKey::generate(ada.store.deployment()), ada.account, None);
    let made = ada.beside(DELETE_ACCOUNT, ada.store.create_key(key, OPERATOR)).await;
    assert!(matches!(made, Err(StoreError::Refused(_))), "{made:?}");
}

#[tokio::test]
async fn key_of_an_account_being_deleted_is_not_rotated() {
    let ada = Ada::new().await;
    let rotation = Rotation::to(&ApiKey::generate(ada.store.deployment()), NOW, Duration::ZERO);
    let rotated = ada.beside(DELETE_ACCOUNT, ada.store.rotate_key(ada.key, rotation, OPERATOR)).await;
    assert_eq!(rotated.unwrap(), None);
}

#[tokio::test]
async fn change_of_an_account_prevents_a_concurrent_session() {
    for change in [
        DELETE_ACCOUNT,
        "UPDATE accounts SET password_hash = 'new'; DELETE FROM sessions",
        "UPDATE accounts SET suspended_at = 1; DELETE FROM sessions",
    ] {
        let ada = Ada::new().await;
        let create = ada.store.create_session(session(ada.account, NOW), ada.digest.clone());
        assert!(!ada.beside(change, create).await.unwrap(), "{change}");
    }
}

/// An account with a password and a key, in a database of its own.
struct Ada {
    url: String,
    store: Arc<Store>,
    account: AccountId,
    digest: PasswordDigest,
    key: KeyId,
}

impl Ada {
    async fn new() -> Self {
        let url = postgres::database();
        let store = open_postgresql(&url).await;
        let (account, digest) = account_with_password(&store, "ada@example.com").await;
        let (key, _) = key(&store, account, None).await;
        Self { url, store, account, digest, key }
    }

    /// The outcome of `work`. Before it, another process executes `sql`, and commits once `work` waits for it.
    async fn beside<T>(&self, sql: &str, work: impl Future<Output = T>) -> T {
        let (url, sql) = (self.url.clone(), format!("BEGIN; {sql}; {AWAIT_ANOTHER}; COMMIT"));
        let other = tokio::task::spawn_blocking(move || try_query(&url, &sql));
        within(TIMEOUT, "the other process's begin", || sessions(&self.url, "wait_event = 'PgSleep'") > 0);
        let outcome = work.await;
        other.await.unwrap().unwrap();
        outcome
    }
}
