//! Writes of an embedded database that change thousands of pages.

use std::sync::Arc;

use petstore::domain::{Deployment, KeyId};
use petstore::store::Store;
use petstore::store::sqlite::Options;
use rusqlite::Connection;
use tempfile::TempDir;

use crate::fixtures::{NOW, OPERATOR, account, account_with_password, animals, open_sqlite, session};

fn open() -> (TempDir, Arc<Store>) {
    let folder = tempfile::tempdir().unwrap();
    let store = open_sqlite(&Options { create: Some(Deployment::Staging), ..Options::new(folder.path()) });
    (folder, store)
}

/// Runs a statement as another program, for the numbers `i` from 1 to `count`.
fn for_each(folder: &TempDir, count: u32, statement: &str) {
    let numbers = "WITH RECURSIVE n (i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < ?1)";
    let conn = Connection::open(folder.path().join("petstore.db")).unwrap();
    conn.execute(&format!("{numbers} {statement}"), [count]).unwrap();
}

fn query(folder: &TempDir, sql: &str) -> i64 {
    let conn = Connection::open(folder.path().join("petstore.db")).unwrap();
    conn.query_row(sql, [], |row| row.get(0)).unwrap()
}

const KEYS: &str = "INSERT INTO api_keys (account_id, name, hash, hint, created_at)
    SELECT 1, 'key', CAST(printf('%032d', i) AS BLOB), 'hint', 0 FROM n";

#[tokio::test]
async fn account_with_many_orders_and_keys_is_deleted() {
    let (folder, store) = open();
    let ada = account(&store, "ada@example.com").await;
    let other = account(&store, "grace@example.com").await;
    for_each(&folder, 100_000, "INSERT INTO pets SELECT i, 'Rex', 1, i % 50 = 0 FROM n");
    // Two orders of ada and many of others on each page.
    let owner = format!("CASE i % 50 WHEN 0 THEN {} ELSE {} END", ada.0, other.0);
    for_each(&folder, 100_000, &format!("INSERT INTO orders SELECT i, {owner}, i, 3 * (i % 50 > 0), 0, 0 FROM n"));
    for_each(&folder, 20_000, KEYS);

    assert!(store.delete_account(ada, None, OPERATOR).await.unwrap());

    assert_eq!(query(&folder, "SELECT count(*) FROM orders WHERE status = 0"), 0);
    assert_eq!(query(&folder, "SELECT count(*) FROM pets WHERE status <> 0"), 0);
    assert_eq!(query(&folder, "SELECT count(*) FROM api_keys WHERE revoked_at IS NULL"), 0);
    assert_eq!(query(&folder, "SELECT count(*) FROM audit WHERE action = 'order.cancel'"), 2_000);
    store.close().await;
}

#[tokio::test]
async fn many_animals_are_replaced() {
    let (folder, store) = open();
    for_each(&folder, 50_000, "INSERT INTO pets SELECT i, 'Rex', 1, 0 FROM n");

    assert_eq!(store.reset(animals(50_000), OPERATOR, || false).await.unwrap(), 50_000);

    assert_eq!(store.count_pets().await.unwrap(), 50_000);
    store.close().await;
}

#[tokio::test]
async fn many_ended_sessions_are_deleted() {
    let (folder, store) = open();
    let (ada, digest) = account_with_password(&store, "ada@example.com").await;
    for_each(
        &folder,
        50_000,
        "INSERT INTO sessions SELECT CAST(printf('%032d', i * 7919 % 50021) AS BLOB), 1, 0, 0 FROM n",
    );

    assert!(store.create_session(session(ada, NOW), digest).await.unwrap());

    assert_eq!(query(&folder, "SELECT count(*) FROM sessions"), 1);
    store.close().await;
}

#[tokio::test]
async fn use_of_many_keys_is_recorded() {
    let (folder, store) = open();
    account(&store, "ada@example.com").await;
    for_each(&folder, 50_000, KEYS);

    store.touch_keys((1..=50_000).map(|id| (KeyId(id), NOW)).collect()).await.unwrap();

    assert_eq!(query(&folder, "SELECT count(*) FROM api_keys WHERE last_used_at IS NULL"), 0);
    store.close().await;
}
