//! Detects poolers that give one connection of the server to several clients in turn, as PgBouncer does in transaction and
//! statement mode. Prepared statements, notifications and settings belong to a connection, so none of them works there.

use std::sync::Arc;

use tokio_postgres::{Client, SimpleQueryMessage};

use super::session::Connection;
use super::url::DatabaseUrl;
use crate::store::{Result, StoreError};

/// How often to look. A pooler that takes its connections in turn gives the same one to both clients only by chance, but
/// then gives each of them different ones.
const LOOKS: usize = 4;

/// Fails if `first` does not have a process of the server to itself.
pub async fn refuse_shared(first: &Connection, url: &DatabaseUrl) -> Result<()> {
    let second = Connection::open(url, Arc::default()).await?.0;
    let mut looks = Vec::new();
    for _ in 0..LOOKS {
        looks.push((backend(&first.client).await?, backend(&second.client).await?));
    }
    let is_shared = looks.iter().any(|look| look.0 == look.1 || *look != looks[0]);
    if !is_shared {
        return Ok(());
    }
    Err(StoreError::Failed(
        "PgBouncer, or another pooler, shares server connections between clients: set pool_mode = session for \
         petstore, or connect to PostgreSQL directly"
            .into(),
    ))
}

/// Identifies the process of the server that answers: by its number, and when its server was started. In one message,
/// since a prepared statement may be unknown to the next process.
async fn backend(client: &Client) -> Result<String> {
    let answer = client.simple_query("SELECT pg_backend_pid() || ' ' || pg_postmaster_start_time()").await?;
    let backend = answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    backend.map(str::to_owned).ok_or_else(|| StoreError::Failed("PostgreSQL does not name its process".into()))
}
