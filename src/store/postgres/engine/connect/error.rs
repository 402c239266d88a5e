//! Conversion of PostgreSQL's errors.

use std::error::Error as _;
use std::io;
use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use super::tls;
use crate::store::StoreError;

/// Returns whether the connection is unusable after the error: it is closed, its server is stopping, starting or no
/// longer accepts writes, or the server has ended a transaction because this process was silent for too long.
pub fn ends_connection(error: &Error) -> bool {
    let Some(state) = error.code() else {
        // Others concern one row or statement, such as a value that cannot be decoded.
        return error.is_closed() || error.source().is_some_and(<dyn std::error::Error>::is::<io::Error>);
    };
    let class = state.code().get(..2);
    class == Some("08") || class == Some("57") && *state != SqlState::QUERY_CANCELED || is_rejection(error)
}

/// Returns whether the server has not carried out the transaction: it accepts no writes, or this process was silent.
pub fn is_rejection(error: &Error) -> bool {
    let rejections = [SqlState::READ_ONLY_SQL_TRANSACTION, SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT];
    error.code().is_some_and(|state| rejections.contains(state))
}

/// Returns whether a retry may succeed, because the cause is the server's state and not the statement.
fn may_pass(error: &Error) -> bool {
    // Besides a lost connection: conflicts (40), resources (53), locks (55), cancelled by an operator (57), I/O (58).
    ends_connection(error)
        || matches!(error.code().and_then(|state| state.code().get(..2)), Some("40" | "53" | "55" | "57" | "58"))
}

/// Describes an error and its cause. Leaves out PostgreSQL's detail, which may contain values of rows.
pub fn describe(error: &Error) -> String {
    match error.as_db_error() {
        Some(db) => format!("{} (SQLSTATE {})", db.message(), db.code().code()),
        None => error.source().map_or(error.to_string(), |cause| format!("{error}: {cause}")),
    }
}

impl From<Error> for StoreError {
    fn from(error: Error) -> Self {
        if may_pass(&error) && !tls::is_refused(&error) {
            Self::Unavailable(describe(&error))
        } else {
            Self::Failed(describe(&error))
        }
    }
}

/// Waits for an answer of the server, for at most `limit`.
pub async fn within<T>(limit: Duration, answer: impl Future<Output = Result<T, Error>>) -> Result<T, StoreError> {
    Ok(timeout(limit, answer).await.map_err(|_| timed_out(limit))??)
}

/// The error for a server that did not answer within `limit`.
pub fn timed_out(limit: Duration) -> StoreError {
    StoreError::Unavailable(format!("PostgreSQL did not answer within {limit:?}"))
}
