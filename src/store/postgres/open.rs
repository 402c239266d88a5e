//! Opening a database: checking the server, and preparing the schema.

use tokio_postgres::Client;

use super::migrations::{self, NO_PRIVILEGE, Schema};
use super::settings::Options;
use crate::domain::Deployment;
use crate::store::{Result, StoreError, deployment};

/// Checks the server's settings, migrates the database and returns its deployment.
pub async fn prepare(client: &mut Client, options: &Options) -> Result<Deployment> {
    check_encoding(client).await?;
    if setting(client, "fsync").await? == "off" {
        tracing::warn!("PostgreSQL runs with fsync = off: a crash may lose acknowledged writes");
    }
    // `reset_val` is the value without this connection's own `SET`.
    let chosen = "SELECT reset_val FROM pg_settings WHERE name = 'synchronous_commit'";
    let chosen: String = client.query_one(chosen, &[]).await?.try_get(0)?;
    if matches!(&*chosen, "off" | "local") {
        tracing::warn!("PostgreSQL is set to synchronous_commit = {chosen}, petstore commits with on");
    }
    let schema = Schema::read(client).await?;
    if !schema.is_new() {
        check_restored(client).await?;
    } else if options.create.is_none() {
        return Err(no_tables());
    }
    if !schema.is_current()? {
        migrations::run(client, options.create.map(|create| options.deployment.unwrap_or(create))).await?;
    }
    if !options.cluster.one_connection {
        check_rights(client).await?;
    }
    deployment::stored(client, options.deployment).await
}

pub async fn check_encoding(client: &Client) -> Result<()> {
    let encoding = setting(client, "server_encoding").await?;
    let why = || StoreError::Failed(format!("the database's encoding is {encoding}: create one with ENCODING 'UTF8'"));
    if encoding == "UTF8" { Ok(()) } else { Err(why()) }
}

/// The tables, as an item of a `FROM` clause.
const TABLES: &str = "unnest(ARRAY['accounts', 'api_keys', 'pets', 'orders', 'messages', 'sessions',
    'idempotency_records', 'audit', 'meta']) AS name";

/// Fails unless the role may create the tables, and no others have their names.
pub async fn check_may_create(client: &Client) -> Result<()> {
    let check = format!(
        "SELECT coalesce(has_schema_privilege(current_schema(), 'CREATE'), false),
            (SELECT min(name) FROM {TABLES} WHERE to_regclass(quote_ident(current_schema()) || '.' || name) IS NOT NULL)"
    );
    let row = client.query_one(&check, &[]).await?;
    match (row.try_get(0)?, row.try_get::<_, Option<&str>>(1)?) {
        (true, None) => Ok(()),
        (false, None) => Err(StoreError::Failed(NO_PRIVILEGE.into())),
        (_, Some(name)) => Err(StoreError::Failed(format!(
            "another program has a table {name} in this schema: use a database or schema for petstore alone"
        ))),
    }
}

/// Fails if a restore of the tables has not ended. It creates foreign keys last.
pub async fn check_restored(client: &Client) -> Result<()> {
    let without =
        "SELECT min(name) FROM unnest('{api_keys, messages, sessions, orders, idempotency_records}'::text[]) AS name
        WHERE NOT EXISTS (SELECT FROM pg_constraint WHERE conrelid = name::regclass AND contype = 'f')";
    let table: Option<String> = client.query_one(without, &[]).await?.try_get(0)?;
    table.map_or(Ok(()), |name| Err(StoreError::Failed(format!("{name} has no foreign key: end the restore first"))))
}

/// Fails unless the role may read and write all rows of all tables. It need not change the audit, or delete.
pub async fn check_rights(client: &Client) -> Result<()> {
    let lacking = format!(
        "SELECT string_agg(name, ', ') FROM {TABLES} WHERE NOT has_table_privilege(name, 'SELECT')
            OR name <> 'meta' AND NOT has_table_privilege(name, 'INSERT')
            OR name <> 'audit' AND NOT has_table_privilege(name, 'UPDATE') OR row_security_active(name)"
    );
    let lacking: Option<String> = client.query_one(&lacking, &[]).await?.try_get(0)?;
    lacking.map_or(Ok(()), |tables| {
        Err(StoreError::Failed(format!(
            "the role may not read and write {tables}: grant it SELECT, INSERT, UPDATE and DELETE on all tables; \
             if row-level security is on, turn it off or give the role BYPASSRLS"
        )))
    })
}

pub async fn setting(client: &Client, name: &str) -> Result<String> {
    Ok(client.query_one("SELECT current_setting($1)", &[&name]).await?.try_get(0)?)
}

pub fn no_tables() -> StoreError {
    StoreError::Failed(
        "the role sees no tables of petstore; `petstore serve` or `petstore quickstart` creates them without --existing-only"
            .into(),
    )
}
