//! Migrations of a PostgreSQL database.

use petstore::store::StoreError;
use petstore::store::postgres::{DatabaseUrl, Options, Postgres};

use crate::postgres_server::{Server, query};

async fn open(url: &str) -> Result<Postgres, StoreError> {
    Postgres::open(&Options::new(DatabaseUrl::parse(url).unwrap())).await
}

/// A new database at schema version 5, which no relay has used.
async fn database_at_version_5() -> String {
    let url = Server::shared().database();
    open(&url).await.unwrap().close().await;
    query(&url, "DROP INDEX messages_by_sending; DELETE FROM refinery_schema_history WHERE version > 5");
    url
}

#[tokio::test]
async fn missing_privilege_to_migrate_is_reported() {
    let url = database_at_version_5().await;
    // The grants of docs/scale-out.md. Before PostgreSQL 15, every role may create tables.
    let role = "REVOKE CREATE ON SCHEMA public FROM PUBLIC;
        CREATE ROLE petstore_serve LOGIN;
        GRANT USAGE ON SCHEMA public TO petstore_serve;
        GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO petstore_serve";
    query(&url, role);

    let error = open(&url.replace("petstore@", "petstore_serve@")).await.unwrap_err();

    let expected = "migration: permission denied for schema public (SQLSTATE 42501): \
        run `petstore migrate` with the role that owns the tables";
    assert!(error.to_string().ends_with(expected), "{error}");
}
