//! What can go wrong below a business operation.

/// A failure of the database. "Not found" and "taken" are answers, not failures.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// It may work later: the queue is full, the disk takes no writes, another process holds the lock, the store closes.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// The disk did not confirm a write. The kernel may then report success for pages it has dropped, so trying again
    /// proves nothing: the process ends.
    #[error("a sync failed: {0}")]
    SyncFailed(String),
    /// It won't work by waiting: a broken database, or a mistake of ours.
    #[error("{0}")]
    Failed(String),
    /// What was to be taken in is not valid; the message is for who sent it.
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
