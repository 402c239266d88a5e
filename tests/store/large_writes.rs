//! Writes of an embedded database that change thousands of pages.

use petstore::domain::{Deployment, KeyId};
use petstore::store::sqlite::Options;
use rusqlite::Connection;

use crate::fixtures::{NOW, OPERATOR, account, account_with_password, animals, open_sqlite, session};

#[tokio::test]
async fn changes_of_thousands_of_pages_are_complete() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_sqlite(&Options { create: Some(Deployment::Staging), ..Options::new(folder.path()) });
    // Another program.
    let conn = Connection::open(folder.path().join("petstore.db")).unwrap();
    let count = |sql: &str| conn.query_row(&format!("SELECT count(*) FROM {sql}"), [], |row| row.get(0)).unwrap();
    let insert = |count: u32, statement: &str| {
        let numbers = "WITH RECURSIVE n (i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < ?1)";
        conn.execute(&format!("{numbers} INSERT INTO {statement} FROM n"), [count]).unwrap();
    };
    let (ada, digest) = account_with_password(&store, "ada@example.com").await;
    let other = account(&store, "grace@example.com").await;

    insert(50_000, "sessions SELECT CAST(printf('%032d', i * 7919 % 50021) AS BLOB), 1, 0, 0");
    assert!(store.create_session(session(ada, NOW), digest).await.unwrap());
    assert_eq!(count("sessions"), 1, "ended sessions are deleted");

    let keys = "api_keys (account_id, name, hash, hint, created_at)";
    insert(50_000, &format!("{keys} SELECT 1, 'key', CAST(printf('%032d', i) AS BLOB), 'hint', 0"));
    store.touch_keys((1..=50_000).map(|id| (KeyId(id), NOW)).collect()).await.unwrap();
    assert_eq!(count("api_keys WHERE last_used_at IS NULL"), 0);

    insert(100_000, "pets SELECT i, 'Rex', 1, i % 50 = 0");
    // Two orders of ada and many of others on each page.
    let owner = format!("CASE i % 50 WHEN 0 THEN {} ELSE {} END", ada.0, other.0);
    insert(100_000, &format!("orders SELECT i, {owner}, i, 3 * (i % 50 > 0), 0, 0"));
    assert!(store.delete_account(ada, None, OPERATOR).await.unwrap());
    for left in ["orders WHERE status = 0", "pets WHERE status <> 0", "api_keys WHERE revoked_at IS NULL"] {
        assert_eq!(count(left), 0, "{left}");
    }
    assert_eq!(count("audit WHERE action = 'order.cancel'"), 2_000);

    assert_eq!(store.reset(animals(50_000), OPERATOR, || false).await.unwrap(), 50_000);
    assert_eq!((count("pets"), count("orders")), (50_000, 0));
    store.close().await;
}
