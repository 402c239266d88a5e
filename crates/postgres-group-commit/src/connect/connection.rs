//! A connection to the server, and the statements prepared on it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};

use crate::error::{Error, Result, timed_out};

/// A connection, driven by its own task.
///
/// It closes when its client is dropped and all responses have arrived, or at once by [`Connection::discard`].
#[derive(Debug)]
pub struct Connection {
    /// Runs statements. A commit needs [`Connection::not_warned_since`].
    pub client: Client,
    pub(super) warnings: Arc<AtomicU64>,
    pub(super) driver: AbortHandle,
    pub(super) discarded: AtomicBool,
}

impl Connection {
    /// Number of warnings that the server has sent on this connection about commits that did not wait for their standby.
    ///
    /// If a commit's wait for the synchronous standby is cancelled, PostgreSQL reports success after a warning. A write
    /// during which this number has grown may therefore be lost.
    pub fn warnings(&self) -> u64 {
        self.warnings.load(Ordering::Acquire)
    }

    /// Checks that no commit since [`Connection::warnings`] returned `before` may be lost.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Unknown`] if the server has sent such warnings since then.
    pub fn not_warned_since(&self, before: u64) -> Result<()> {
        match self.warnings() == before {
            true => Ok(()),
            false => Err(Error::Unknown("PostgreSQL sent a warning during a write, which may not be durable".into())),
        }
    }

    /// Closes the connection at once. Statements in progress are not cancelled, because a commit that timed out here may
    /// still succeed.
    pub fn discard(&self) {
        self.discarded.store(true, Ordering::Release);
        self.driver.abort();
    }

    /// Discards the connection, and returns the error of a server that did not answer within `limit`.
    pub(crate) fn give_up(&self, limit: Duration) -> Error {
        self.discard();
        timed_out(limit)
    }

    pub(crate) fn is_usable(&self) -> bool {
        !self.discarded.load(Ordering::Acquire) && !self.client.is_closed()
    }
}

/// Selects the reason why the server must not be used, or NULL, the number of standbys that a commit waits for, and those that
/// are connected. A demoted server still answers reads, with old data.
///
/// Only a role with `pg_read_all_stats` sees which of the connected standbys are synchronous. For others, all count.
macro_rules! check {
    ($standbys:literal) => {
        concat!(
            "SELECT CASE WHEN current_setting('transaction_read_only') = 'on' THEN 'the server no longer accepts writes'",
            $standbys,
            " END, wanted, connected FROM (SELECT
                CASE WHEN names = '' THEN 0
                    ELSE coalesce(substring(names FROM '([0-9]+)[[:space:]]*[(]')::bigint, 1) END AS wanted,
                (SELECT count(*) FROM pg_stat_replication WHERE coalesce(sync_state, 'sync') IN ('sync', 'quorum'))
                    AS connected
                FROM current_setting('synchronous_standby_names') AS names) AS standbys"
        )
    };
}

pub(super) const WRITABLE: &str = check!("");

/// Like [`WRITABLE`], and checks that as many standbys are connected as a commit waits for. The server disconnects silent
/// ones after `wal_sender_timeout`, so an isolated primary fails this check before reads become stale for long.
pub(super) const WITH_STANDBYS: &str =
    check!(" WHEN connected < wanted THEN 'too few standbys are connected to the server'");

/// A connection on which the statements of its purpose are prepared, so that no request pays for that, also after a fail-over.
/// Concurrent requests share it, and the server answers them in turn.
#[derive(Debug)]
pub struct PreparedConnection {
    /// The connection itself, on which a transaction of a [`Write`](crate::Write) begins and commits.
    pub connection: Connection,
    pub(super) statements: HashMap<&'static str, Statement>,
}

impl PreparedConnection {
    /// Runs a statement. If it is prepared, it is sent whole before the first wait, so a caller that goes away leaves nothing
    /// half done.
    ///
    /// # Errors
    ///
    /// Fails with the server's error, or that of the connection.
    ///
    /// # Panics
    ///
    /// In debug builds, panics if the statement was not listed when the connection was opened.
    pub async fn query(
        &self,
        sql: &'static str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let statement = self.statements.get(sql);
        debug_assert!(statement.is_some() || !self.is_prepared(), "missing from the list of statements: {sql}");
        match statement {
            Some(statement) => self.connection.client.query(statement, parameters).await,
            // Preparing it costs each call a round trip.
            None => Box::pin(self.connection.client.query(sql, parameters)).await,
        }
    }

    /// Returns whether its statements are prepared. False with [`Options::one_connection`](crate::Options::one_connection).
    pub fn is_prepared(&self) -> bool {
        self.statements.len() > 1
    }
}
