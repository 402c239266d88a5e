//! Conversion of the errors of PostgreSQL.

use crate::store::StoreError;
use postgres_group_commit::Error;

impl From<Error> for StoreError {
    fn from(error: Error) -> Self {
        match error {
            Error::Unavailable(_) | Error::Unknown(_) => Self::Unavailable(error.to_string()),
            Error::Failed(why, _) => Self::Failed(why),
        }
    }
}

impl From<tokio_postgres::Error> for StoreError {
    fn from(error: tokio_postgres::Error) -> Self {
        Error::from(error).into()
    }
}

/// Converts the error of statements that end with a commit. Names `in_doubt` if they may have been committed.
pub fn of_commit(error: tokio_postgres::Error, in_doubt: &str) -> StoreError {
    match Error::of_commit(error) {
        Error::Unknown(why) => StoreError::Unavailable(format!("{why}: {in_doubt} before you retry")),
        error => error.into(),
    }
}
