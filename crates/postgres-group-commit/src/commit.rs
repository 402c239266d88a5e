//! The commit of a write: how long it may take, and when its outcome is unknown.

use tokio::time::{Duration, Instant, timeout_at};

use super::connect::connection::{Connection, PreparedConnection};
use super::error::{Error, Result, ends_connection, late};

/// Returns whether a commit of this role waits for the synchronous standbys, and for longer than two may take ($1 seconds).
/// PostgreSQL confirms the commits of one `synchronous_commit` in their order, so another one would wait as well, unless the
/// settings have changed.
const AWAITS_STANDBYS: &str = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep'
    AND usename = session_user AND datname = current_database()
    AND query_start BETWEEN pg_conf_load_time() AND clock_timestamp() - make_interval(secs => $1))";

/// Waits for a write, until `limit` after `began`.
///
/// Fails with [`Error::Unknown`] if it is unknown whether the write was committed. Discards a connection that is lost or slow.
pub async fn await_commit<T>(
    connection: &Connection,
    began: Instant,
    limit: Duration,
    write: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T> {
    let warnings = connection.warnings();
    match timeout_at(began + limit, write).await {
        Ok(Ok(output)) => connection.not_warned_since(warnings).map(|()| output),
        Ok(Err(error)) if !ends_connection(&error) => return Err(Error::of_commit(error)),
        Ok(Err(error)) => Err(Error::of_commit(error)),
        Err(_) => Err(Error::Unknown(late(limit))),
    }
    .inspect_err(|_| connection.discard())
}

/// Fails if a commit would have to wait for the standbys. Each one that waits occupies a connection of the server, also
/// after this end is closed, and the server has a limited number of them. The check must end in the time for the commit,
/// `limit` after `began`.
pub async fn check_standbys(prepared: &PreparedConnection, began: Instant, limit: Duration) -> Result<()> {
    let connection = &prepared.connection;
    let longest = (2 * limit).as_secs_f64();
    match timeout_at(began + limit, connection.client.query_one(AWAITS_STANDBYS, &[&longest])).await {
        Ok(Ok(row)) if row.try_get(0)? => {
            Err(Error::Unavailable("earlier commits still wait for PostgreSQL's synchronous standbys".into()))
        }
        // The server may hide its sessions. If the connection is lost, the write finds out.
        Ok(_) => Ok(()),
        Err(_) => Err(connection.give_up(limit)),
    }
}
