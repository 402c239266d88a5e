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
