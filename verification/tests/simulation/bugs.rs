//! Planted bugs: the controls of the simulation, which must find each of them.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A message is acknowledged before its commit.
    AnswerBeforeCommit,
    /// Syncs of the disk report success without being done.
    SyncsThatLie,
    /// A retry is executed without its idempotency key.
    RetryWithoutKey,
    /// The greatest animal is deleted, so the next one gets its id.
    DeletedAnimal,
    /// Retention deletes old messages that the web server has not acknowledged.
    RetentionOfUnsent,
    /// Messages are marked as sent although their acknowledgement did not arrive.
    SentWithoutAcknowledgement,
    /// The token bucket of an account moves back at times.
    BucketMovesBack,
    /// The cache of keys does not follow the changes of other processes.
    CacheAlone,
}

impl Bug {
    pub const ALL: [Self; 8] = [
        Self::AnswerBeforeCommit,
        Self::SyncsThatLie,
        Self::RetryWithoutKey,
        Self::DeletedAnimal,
        Self::RetentionOfUnsent,
        Self::SentWithoutAcknowledgement,
        Self::BucketMovesBack,
        Self::CacheAlone,
    ];
}
