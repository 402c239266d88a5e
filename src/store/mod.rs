//! Everything that is kept, behind one type. A method is one business operation and its own transaction;
//! connections and transactions never leave this module.
//!
//! What can be done with a resource is in the file of its name, and how in that of each database.
//!
//! The set of databases is closed, so it is an enum and not a trait: a missing arm does not compile.

mod accounts;
mod backup_status;
mod deployment;
mod error;
mod export;
mod keys;
mod message_query;
mod messages;
mod meters;
mod migrations;
pub mod moving;
mod orders;
mod pets;
pub mod postgres;
pub mod sqlite;

pub use backup_status::BackupStatus;
pub use error::StoreError;
pub use meters::{Disk, Meters, ReaderMeter, WriterMeter};
pub use migrations::MigrationStatus;
use postgres::Postgres;
use sqlite::Sqlite;
pub use sqlite::Version;

use crate::domain::{Answer, Deployment, NewPet, Timestamp};

pub type Result<T> = std::result::Result<T, StoreError>;

/// A stream of animals to take in: it ends at the first error, and then nothing of it is kept.
pub type PetSource = Box<dyn Iterator<Item = std::result::Result<NewPet, String>> + Send>;

/// Makes the answer to a request from what it brought about.
pub type AnswerTo<T> = Box<dyn Fn(&T) -> Answer + Send + Sync>;

/// What makes a process the one that relays messages; given back by dropping it. Each database uses a part of its own.
#[derive(Debug, Default)]
pub struct RelayLease {
    lock: Option<std::fs::File>,
    session: Option<postgres::outbox::LeaseSession>,
}

/// What the hot path calls on PostgreSQL is boxed, so that the other arm's futures stay small.
#[derive(Debug)]
pub enum Store {
    Sqlite(Sqlite),
    /// In a box, since it is much larger than the other arm.
    Postgres(Box<Postgres>),
}

impl Store {
    /// What the database was made for.
    pub fn deployment(&self) -> Deployment {
        match self {
            Self::Sqlite(db) => db.deployment(),
            Self::Postgres(db) => db.deployment(),
        }
    }

    /// Which database it is, and its version, for people.
    pub fn database(&self) -> String {
        match self {
            Self::Sqlite(_) => format!("SQLite {}", rusqlite::version()),
            Self::Postgres(db) => format!("PostgreSQL {}", db.server_version()),
        }
    }

    /// Deletes at most `limit` of the answers that were kept until `now`, oldest first; returns how many these were.
    pub async fn delete_expired_answers(&self, now: Timestamp, limit: u32) -> Result<u64> {
        match self {
            Self::Sqlite(db) => db.write(move |conn| sqlite::idempotency::delete_expired(conn, now, limit)).await,
            Self::Postgres(db) => postgres::idempotency::delete_expired(db, now, limit).await,
        }
    }

    /// What reads would see now: equal versions mean that nothing was committed between them, by any process.
    /// Nothing where that can't be told without a query.
    pub fn version(&self) -> Option<Version> {
        match self {
            Self::Sqlite(db) => db.version(),
            Self::Postgres(_) => None,
        }
    }

    /// Whether reads and writes are possible, as far as can be told without writing.
    pub async fn check(&self) -> Result<()> {
        match self {
            Self::Sqlite(db) => db.check(),
            Self::Postgres(db) => db.check().await,
        }
    }

    /// What it has counted so far.
    pub fn meters(&self) -> Meters<'_> {
        match self {
            Self::Sqlite(db) => db.meters(),
            Self::Postgres(db) => db.meters(),
        }
    }

    /// The disk of the embedded database, where the system tells.
    pub fn disk(&self) -> Option<Disk> {
        match self {
            Self::Sqlite(db) => db.disk(),
            Self::Postgres(_) => None,
        }
    }

    /// Waits until the store can't go on and the process must end; says why.
    pub async fn failed(&self) -> String {
        match self {
            Self::Sqlite(db) => db.failed().await,
            // Whatever is wrong with the server, the connections mend themselves once it is right again.
            Self::Postgres(_) => std::future::pending().await,
        }
    }

    /// What came of scheduled backups, where this program makes them.
    pub const fn backups(&self) -> Option<&BackupStatus> {
        match self {
            Self::Sqlite(db) => Some(db.backups()),
            Self::Postgres(_) => None,
        }
    }

    /// Finishes what was queued and closes the database. Later calls answer [`StoreError::Unavailable`].
    pub async fn close(&self) {
        match self {
            Self::Sqlite(db) => db.close().await,
            Self::Postgres(db) => db.close().await,
        }
    }
}
