//! Detects connection poolers that share server connections between clients, as PgBouncer does in transaction and
//! statement mode. Prepared statements, notifications and settings belong to a server connection, so they do not work
//! there.

use tokio_postgres::{Client, SimpleQueryMessage};

use super::connection::Connection;
use crate::error::{Error, Result};

/// Number of probes. A round-robin pooler gives both clients the same server connection only by chance, but gives each
/// client different ones over several probes.
const LOOKS: usize = 4;

/// Fails if two connections share their server processes with other clients.
pub async fn refuse_shared(first: &Connection, second: &Connection) -> Result<()> {
    let mut looks = Vec::new();
    for _ in 0..LOOKS {
        looks.push((backend(&first.client).await?, backend(&second.client).await?));
    }
    let is_shared = looks.iter().any(|look| look.0 == look.1 || *look != looks[0]);
    let why = "PgBouncer, or another pooler, shares server connections between clients: set pool_mode = session, or \
               connect to PostgreSQL directly";
    if is_shared { Err(Error::Failed(why.into(), None)) } else { Ok(()) }
}

/// Identifies the server process that answers, by its number and the start time of its server. Uses the simple protocol,
/// because the next process may not know a prepared statement.
async fn backend(client: &Client) -> Result<String> {
    let answer = client.simple_query("SELECT pg_backend_pid() || ' ' || pg_postmaster_start_time()").await?;
    let backend = answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    backend.map(str::to_owned).ok_or_else(|| Error::Failed("PostgreSQL does not name its process".into(), None))
}
