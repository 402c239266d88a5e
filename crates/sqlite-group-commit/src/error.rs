//! Errors, and the conversion of SQLite's.

use std::path::PathBuf;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure of the database, or the refusal of a job. [`Error::is_not_applied`] tells what it says of a write.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The operation may succeed later: the disk is full or fails, another process holds the lock, the queue is full, or the
    /// database is closed. A write was not applied.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// The write may have been applied, or may still be: it takes longer than 10 s, its commit failed, or the job ended the
    /// transaction or failed after its statement.
    #[error("{0}: the change may have been made")]
    Unknown(String),
    /// The disk did not confirm a write. The kernel may report success for pages that it has dropped, so a retry proves
    /// nothing, and the process must end.
    #[error("a sync failed: {0}")]
    SyncFailed(String),
    /// The operation cannot succeed: a wrong statement, a database that is corrupt or of another schema. A write was not
    /// applied. A job that ends the transaction fails all of its batch. The others succeed if they are repeated.
    #[error("{0}")]
    Failed(String),
    /// A constraint refused the write, which was not applied. The number is SQLite's extended result code, such as
    /// [`SQLITE_CONSTRAINT_UNIQUE`](rusqlite::ffi::SQLITE_CONSTRAINT_UNIQUE). A deferred constraint, which is checked at the
    /// commit, fails all of the batch. The others succeed if they are repeated.
    #[error("{0}")]
    Constraint(String, i32),
    /// The job refused its input. Only jobs and schemas make this error. With
    /// [`Atomicity::Batch`](crate::Atomicity::Batch), all of the batch gets it.
    #[error("{0}")]
    Refused(String),
    /// There is no database in this folder, and none may be created ([`Options::create`](crate::Options::create)).
    #[error("there is no database in {}", .0.display())]
    Missing(PathBuf),
    /// Says which file or database is there already, and may be replaced only if the caller says so.
    #[error("{0}")]
    Exists(String),
    /// The database is a symbolic link. SQLite keeps the log and its index beside the target, and the locks are here.
    #[error("{} is a link: open the folder of its target, or move the database here", .0.display())]
    Link(PathBuf),
    /// The files of the folder do not belong together, or one is gone. The call has changed nothing.
    #[error(
        "{what}. Put back the files that belong together, {name}.lock among them, or replace them by a backup. If another \
         program has opened and closed the database since, write `unchecked` into {lock}"
    )]
    Apart {
        /// The file, and what is wrong with it.
        what: String,
        /// Path of the lock file.
        lock: String,
        /// Name of the database: see [`Folder::new`](crate::Folder::new).
        name: &'static str,
    },
}

impl Error {
    /// Returns true if the failed write was certainly not applied. After any other error, it is unknown: the write may have
    /// been applied, or may still be, and may be visible to reads.
    pub const fn is_not_applied(&self) -> bool {
        !matches!(self, Self::Unknown(_) | Self::SyncFailed(_))
    }

    /// Converts the error of a write that may have been applied all the same.
    pub(crate) fn unknown(self) -> Self {
        match self {
            Self::Unknown(_) | Self::SyncFailed(_) => self,
            Self::Unavailable(why) => Self::Unknown(why),
            error => Self::Unknown(error.to_string()),
        }
    }
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode as Code;
        use rusqlite::ffi::{SQLITE_IOERR_DIR_FSYNC, SQLITE_IOERR_FSYNC, SQLITE_READONLY};
        let extended = error.sqlite_error().map_or(0, |cause| cause.extended_code);
        match error.sqlite_error_code() {
            _ if matches!(extended, SQLITE_IOERR_FSYNC | SQLITE_IOERR_DIR_FSYNC) => Self::SyncFailed(error.to_string()),
            Some(Code::ConstraintViolation) => Self::Constraint(error.to_string(), extended),
            // A write within a read.
            Some(Code::ReadOnly) if extended == SQLITE_READONLY => Self::Failed(error.to_string()),
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

#[cfg(test)]
mod tests {
    use rusqlite::ffi::{self, SQLITE_IOERR_DIR_FSYNC, SQLITE_IOERR_FSYNC, SQLITE_IOERR_WRITE};

    use super::*;

    #[test]
    fn failed_sync_is_told_from_other_errors_of_the_disk() {
        let of = |code| Error::from(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None));
        for code in [SQLITE_IOERR_FSYNC, SQLITE_IOERR_DIR_FSYNC] {
            assert!(matches!(of(code), Error::SyncFailed(_)), "{code}");
        }
        assert!(matches!(of(SQLITE_IOERR_WRITE), Error::Unavailable(_)));
    }
}
