//! Migrations of a PostgreSQL database.

use petstore::store::StoreError;
use petstore::store::postgres::Postgres;
use testkit::postgres::{self, query};
use testkit::soon;

use crate::fixtures::options;

async fn open(url: &str) -> Result<Postgres, StoreError> {
    Postgres::open(&options(url)).await
}

async fn wait_until(url: &str, condition: &str) {
    soon(async {
        while query(url, condition) != "t" {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn missing_privilege_to_migrate_is_reported() {
    let url = postgres::database_at(5);
    // The grants of docs/scale-out.md. Before PostgreSQL 15, every role may create tables.
    let role = "REVOKE CREATE ON SCHEMA public FROM PUBLIC;
        CREATE ROLE petstore_serve LOGIN;
        GRANT USAGE ON SCHEMA public TO petstore_serve;
        GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO petstore_serve";
    query(&url, role);

    let error = open(&url.replace("petstore@", "petstore_serve@")).await.unwrap_err();

    let expected = "migration V6__relay_index: permission denied for schema public (SQLSTATE 42501): \
        run `petstore migrate` with the role that owns the tables";
    assert!(error.to_string().ends_with(expected), "{error}");
}

#[tokio::test]
async fn migration_waits_for_an_index_created_concurrently() {
    let url = postgres::database_at(5);
    let (writer, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    // `CREATE INDEX CONCURRENTLY` waits for the end of this transaction.
    writer.batch_execute("BEGIN; LOCK TABLE messages IN ROW EXCLUSIVE MODE").await.unwrap();
    let create = "CREATE INDEX CONCURRENTLY messages_by_sending ON messages (sent_at, id)";
    let index = tokio::task::spawn_blocking({
        let url = url.clone();
        move || query(&url, create)
    });
    wait_until(&url, "SELECT count(*) > 0 FROM pg_stat_progress_create_index WHERE relid = to_regclass('messages')")
        .await;

    let commit = async {
        // One process has the lock and waits for the index. The other one waits for the lock.
        let waiting = "WITH session AS (
                SELECT query LIKE '%advisory_lock%' AS asks,
                    pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted) AS holds
                FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid())
            SELECT count(*) FILTER (WHERE holds AND NOT asks) = 1 AND count(*) FILTER (WHERE asks AND NOT holds) = 1
            FROM session";
        wait_until(&url, waiting).await;
        writer.batch_execute("COMMIT").await.unwrap();
    };
    let (one, other, ()) = tokio::join!(open(&url), open(&url), commit);

    index.await.unwrap();
    one.unwrap().close().await;
    other.unwrap().close().await;
    let valid = "SELECT indisvalid FROM pg_index WHERE indexrelid = 'messages_by_sending'::regclass";
    assert_eq!(query(&url, valid), "t");
    assert_eq!(query(&url, "SELECT max(version) > 5 FROM refinery_schema_history"), "t");
    drop(writer);
    connection.await.unwrap().unwrap();
}
