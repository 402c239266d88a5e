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

impl From<sqlite_group_commit::Error> for StoreError {
    fn from(error: sqlite_group_commit::Error) -> Self {
        use sqlite_group_commit::Error;
        match error {
            Error::Unavailable(why) => Self::Unavailable(why),
            Error::Unknown(_) => Self::Unavailable(error.to_string()),
            Error::SyncFailed(why) => Self::SyncFailed(why),
            Error::Failed(why) | Error::Constraint(why, _) => Self::Failed(why),
            Error::Refused(why) => Self::Refused(why),
            Error::Missing(_) => Self::Failed(format!(
                "{error}: mount its volume, or let `petstore serve` or `petstore quickstart` create one without --existing-only"
            )),
            Error::Exists(_) => Self::Failed(format!("{error}; use --force to replace it")),
            Error::Link(file) => {
                let why = "is a link: give the folder of its target with --data-dir, or move the database here";
                Self::Failed(format!("{} {why}", file.display()))
            }
            Error::Apart { what, lock, .. } => Self::Failed(format!(
                "{what}. Put back the files that belong together, petstore.lock among them, or replace them by a backup \
                 (petstore restore --force). If another program has opened and closed the database since, write `unchecked` \
                 into {lock}"
            )),
        }
    }
}

/// The error of a job, which undoes its batch if the whole transaction is lost.
impl From<StoreError> for sqlite_group_commit::Error {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(why) => Self::Unavailable(why),
            StoreError::SyncFailed(why) => Self::SyncFailed(why),
            StoreError::Failed(why) => Self::Failed(why),
            StoreError::Refused(why) => Self::Refused(why),
        }
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        sqlite_group_commit::Error::from(error).into()
    }
}
