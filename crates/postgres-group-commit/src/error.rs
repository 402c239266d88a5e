//! Errors, and the conversion of PostgreSQL's.

use std::error::Error as _;
use std::io;
use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::error::{DbError, Severity, SqlState};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure of the database or of the connection to it. The text is for the operator. It has no values of rows, and no
/// password.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// A retry may succeed: the server is not reachable, accepts no writes or is short of resources, a queue is full, or the
    /// connections are closed. A write was not applied.
    #[error("{0}")]
    Unavailable(String),
    /// It is unknown whether a write was applied, or whether it is durable: the server did not confirm it in time, or sent a
    /// warning, or the outcome cannot be decoded, or [`Write::run`](crate::Write::run) panicked.
    #[error("{0}: the change may have been made")]
    Unknown(String),
    /// A retry does not help. A write was not applied. If the server rejected a statement, also has its SQLSTATE, such as
    /// [`SqlState::UNIQUE_VIOLATION`] of a duplicate. A [`Write`](crate::Write) that violates a constraint fails all of its
    /// batch, and the others succeed if they are repeated. To prevent that, say `ON CONFLICT`, and return an outcome.
    #[error("{0}")]
    Failed(String, Option<SqlState>),
}

/// Error of [`DatabaseUrl::parse`](crate::DatabaseUrl::parse). Its text continues a sentence that begins with what the URL is,
/// such as "the URL". It quotes no part of the URL.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct InvalidUrl(pub(super) String);

impl Error {
    /// Converts the error of a statement that ends with `COMMIT`, or of one outside of a transaction: [`Error::Unknown`] if
    /// the connection was lost, the server ended the session or does not know the outcome, or the error is not the server's.
    pub fn of_commit(error: tokio_postgres::Error) -> Self {
        if is_unknown(&error) { Self::Unknown(describe(&error)) } else { error.into() }
    }
}

/// Converts the error of a statement that commits nothing.
impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        if may_pass(&error) && !is_untrusted(&error) {
            Self::Unavailable(describe(&error))
        } else {
            Self::Failed(describe(&error), error.code().cloned())
        }
    }
}

/// Returns whether the connection is unusable after the error: it is closed, its server is stopping or starting, or the error is a
/// rejection ([`is_rejection`]).
pub fn ends_connection(error: &tokio_postgres::Error) -> bool {
    let Some(state) = error.code() else {
        // Others concern one row or statement, such as a value that cannot be decoded.
        return error.is_closed() || error.source().is_some_and(<dyn std::error::Error>::is::<io::Error>);
    };
    let class = state.code().get(..2);
    class == Some("08") || class == Some("57") && *state != SqlState::QUERY_CANCELED || is_rejection(error)
}

/// Returns whether a commit with this error may have been carried out.
fn is_unknown(error: &tokio_postgres::Error) -> bool {
    error.as_db_error().is_none_or(|cause| {
        // The SQLSTATE is that of the cause, such as a full disk, even if the server ended after the commit was on it.
        let ended = matches!(cause.parsed_severity(), Some(Severity::Fatal | Severity::Panic));
        let is_unknown = ended || ends_connection(error) || *cause.code() == SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN;
        is_unknown && !is_rejection(error)
    })
}

/// Returns whether the server has not carried out the transaction: it accepts no writes, this process was silent, or a table has
/// changed since a statement was prepared.
fn is_rejection(error: &tokio_postgres::Error) -> bool {
    let states = [Some(&SqlState::READ_ONLY_SQL_TRANSACTION), Some(&SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT)];
    states.contains(&error.code()) || error.as_db_error().and_then(DbError::routine) == Some("RevalidateCachedQuery")
}

/// Returns whether a retry may succeed, because the cause is the server's state and not the statement.
fn may_pass(error: &tokio_postgres::Error) -> bool {
    // Besides a lost connection: conflicts (40), resources (53), limits, such as no transaction ids until a vacuum has run
    // (54), locks (55), cancelled by an operator (57), I/O (58).
    ends_connection(error)
        || matches!(error.code().and_then(|state| state.code().get(..2)), Some("40" | "53" | "54" | "55" | "57" | "58"))
}

/// Returns whether the server's certificate was rejected. Retrying does not help then.
fn is_untrusted(error: &tokio_postgres::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>()).and_then(io::Error::get_ref);
    let cause = cause.and_then(|cause| cause.downcast_ref::<rustls::Error>());
    matches!(cause, Some(rustls::Error::InvalidCertificate(_)))
}

/// Describes an error and its cause. Leaves out PostgreSQL's detail, which may contain values of rows.
fn describe(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(db) => format!("{} (SQLSTATE {})", db.message(), db.code().code()),
        None => error.source().map_or(error.to_string(), |cause| format!("{error}: {cause}")),
    }
}

/// Waits for an answer of the server, for at most `limit`. The answer is not to a commit.
///
/// # Errors
///
/// Fails with the error of `answer`, and with [`Error::Unavailable`] after `limit`.
pub async fn within<T>(limit: Duration, answer: impl Future<Output = Result<T, impl Into<Error>>>) -> Result<T> {
    timeout(limit, answer).await.map_err(|_| timed_out(limit))?.map_err(Into::into)
}

/// The error for a server that did not answer within `limit`.
pub fn timed_out(limit: Duration) -> Error {
    Error::Unavailable(late(limit))
}

/// Says that the connections were closed on purpose.
pub const CLOSED: &str = "the connections to PostgreSQL are closed";

pub fn late(limit: Duration) -> String {
    format!("PostgreSQL did not answer within {limit:?}")
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio_postgres::{Config, NoTls};

    use super::*;

    /// Returns the error of a statement that a server answers with `cause`, a severity and an SQLSTATE.
    async fn failed(cause: &str) -> tokio_postgres::Error {
        let (severity, state) = cause.split_once(' ').unwrap();
        let (stream, mut server) = duplex(1_024);
        let fields = format!("S{severity}\0V{severity}\0C{state}\0Ma cause\0\0");
        let length = u32::try_from(fields.len() + 4).unwrap().to_be_bytes();
        let answer = [b"E", &length[..], fields.as_bytes()].concat();
        tokio::spawn(async move {
            for answer in [b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I", &answer[..]] {
                assert!(server.read(&mut [0; 1_024]).await.unwrap() > 0);
                server.write_all(answer).await.unwrap();
            }
        });
        let (client, connection) = Config::new().user("ada").connect_raw(stream, NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute("COMMIT").await.unwrap_err()
    }

    #[tokio::test]
    async fn commit_is_unknown_if_the_server_ends_the_session() {
        for cause in ["FATAL 53100", "PANIC 58030", "FATAL 57P01", "ERROR 40003"] {
            let error = Error::of_commit(failed(cause).await);
            assert!(matches!(error, Error::Unknown(_)), "{cause}: {error:?}");
        }
        for cause in ["ERROR 53100", "ERROR 54000", "FATAL 25P03", "ERROR 25006", "ERROR 40001"] {
            let error = Error::of_commit(failed(cause).await);
            assert!(matches!(error, Error::Unavailable(_)), "{cause}: {error:?}");
        }
    }
}
