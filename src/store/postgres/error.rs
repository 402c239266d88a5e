//! What an error of PostgreSQL means to who asked, and to the connection it came on.

use std::error::Error as _;
use std::time::Duration;

use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use super::tls;
use crate::store::StoreError;

/// Returns whether the connection is unusable after the error: it is closed, its server is stopping, starting or no
/// longer accepts writes, or the server has ended a transaction because this process was silent for too long.
pub fn ends_connection(error: &Error) -> bool {
    let Some(state) = error.code() else { return true };
    let class = state.code().get(..2);
    class == Some("08")
        || class == Some("57") && *state != SqlState::QUERY_CANCELED
        || *state == SqlState::READ_ONLY_SQL_TRANSACTION
        || *state == SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT
}

/// Whether trying again may help: the server stands in the way, and not what was asked.
fn may_pass(error: &Error) -> bool {
    // Beyond a lost connection: conflicts (40), no resources (53), a lock (55), cancelled by an operator (57), I/O (58).
    ends_connection(error)
        || matches!(error.code().and_then(|state| state.code().get(..2)), Some("40" | "53" | "55" | "57" | "58"))
}

/// The error with its causes, but without the rows that PostgreSQL puts into details.
pub fn told(error: &Error) -> String {
    match error.as_db_error() {
        Some(db) => format!("{} (SQLSTATE {})", db.message(), db.code().code()),
        None => error.source().map_or(error.to_string(), |cause| format!("{error}: {cause}")),
    }
}

impl From<Error> for StoreError {
    fn from(error: Error) -> Self {
        if may_pass(&error) && !tls::is_refused(&error) {
            Self::Unavailable(told(&error))
        } else {
            Self::Failed(told(&error))
        }
    }
}

/// The error for a server that did not answer within `limit`.
pub fn timed_out(limit: Duration) -> StoreError {
    StoreError::Unavailable(format!("PostgreSQL did not answer within {limit:?}"))
}
