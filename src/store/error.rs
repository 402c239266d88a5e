//! Errors of the store.

/// A failure of the database. Results such as "not found" are not failures.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The operation may succeed later: the queue is full, the disk accepts no writes, another process holds the lock, or
    /// the store is closed.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// The disk did not confirm a write. The kernel may report success for pages that it has dropped, so a retry proves
    /// nothing, and the process ends.
    #[error("a sync failed: {0}")]
    SyncFailed(String),
    /// The operation cannot succeed: the database is corrupt, or the program has a bug.
    #[error("{0}")]
    Failed(String),
    /// The input is invalid. The message is for its author.
    #[error("{0}")]
    Refused(String),
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode as Code;
        use rusqlite::ffi::{SQLITE_IOERR_DIR_FSYNC, SQLITE_IOERR_FSYNC};
        let extended = error.sqlite_error().map(|cause| cause.extended_code);
        if matches!(extended, Some(SQLITE_IOERR_FSYNC | SQLITE_IOERR_DIR_FSYNC)) {
            return Self::SyncFailed(error.to_string());
        }
        match error.sqlite_error_code() {
            Some(
                Code::DatabaseBusy
                | Code::DatabaseLocked
                | Code::DiskFull
                | Code::SystemIoFailure
                | Code::ReadOnly
                | Code::CannotOpen
                | Code::PermissionDenied
                | Code::OutOfMemory,
            ) => Self::Unavailable(error.to_string()),
            _ => Self::Failed(error.to_string()),
        }
    }
}
