//! Migrations of a PostgreSQL database.

use petstore::store::postgres::Postgres;
use testkit::postgres::{self, query};

use crate::fixtures::options;

#[tokio::test]
async fn missing_privilege_to_migrate_is_reported() {
    let url = postgres::database();
    // The grants of docs/scale-out.md. Before PostgreSQL 15, every role may create tables.
    let role = "REVOKE CREATE ON SCHEMA public FROM PUBLIC;
        CREATE ROLE petstore_serve LOGIN;
        GRANT USAGE ON SCHEMA public TO petstore_serve;
        GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO petstore_serve";
    query(&url, role);

    let error = Postgres::open(&options(&url.replace("petstore@", "petstore_serve@"))).await.unwrap_err();

    let expected = "migration V1__store: permission denied for schema public (SQLSTATE 42501): \
        run `petstore migrate` with the role that owns the tables";
    assert!(error.to_string().ends_with(expected), "{error}");
}
