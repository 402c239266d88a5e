//! Storage in SQLite or PostgreSQL. A method of [`Store`] is one operation and its own transaction. Connections and
//! transactions stay inside this module.
//!
//! Each resource has a folder here: `mod.rs` has its methods; `sqlite.rs` and `postgres.rs` have the statements and steps that
//! differ, for the sake of speed. The folders `sqlite` and `postgres` have what is the same for all resources.
//!
//! The databases are an enum and not a trait, because the set is closed. The futures of PostgreSQL are boxed, so that those of
//! SQLite stay small.

/// Calls a method that both databases have. Not a function, because their types differ.
macro_rules! dispatch {
    ($store:ident, $db:ident => $call:expr) => {
        match $store {
            Self::Sqlite($db) => $call,
            Self::Postgres($db) => $call,
        }
    };
}

/// Reads a type from a row whose columns are these fields, in this order.
macro_rules! from_row {
    ($type:ident { $($field:ident),+ }) => {
        impl crate::store::row::FromRow for $type {
            fn from_row<R: crate::store::row::Row>(row: &R) -> std::result::Result<Self, R::Error> {
                let mut columns = 0..;
                Ok(Self { $($field: row.column(columns.next().expect("the range has no end"))?),+ })
            }
        }
    };
}

#[macro_use]
mod statement;
#[macro_use]
mod transaction;

mod accounts;
mod audit;
pub mod copy_to_postgres;
mod deployment;
mod error;
mod expiry;
mod export;
mod idempotency;
mod keys;
mod messages;
mod meters;
mod migrations;
mod orders;
mod pets;
pub mod postgres;
mod reset;
mod row;
pub mod sqlite;

pub use error::StoreError;
pub use expiry::delete_expired;
pub use export::{ExportError, Exported};
pub use idempotency::{Outcome, StoredResponse, WriteKey};
pub use messages::RelayLease;
pub use meters::{Disk, Meters, ReaderMeter, WriterMeter};
pub use migrations::MigrationStatus;
pub use orders::OrderNames;
use postgres::Postgres;
pub use reset::Contents;
use sqlite::Sqlite;
pub use sqlite::{Epoch, Version};

use crate::domain::{Deployment, NewPet, PageLimit};

/// A result of the store. Every method may fail with any variant of [`StoreError`]. After a failed write, it is unknown whether
/// it was applied, unless the error is [`StoreError::Refused`].
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Animals to import. The import ends at the first error and adds none of them.
pub type PetSource = Box<dyn Iterator<Item = std::result::Result<NewPet, String>> + Send>;

/// Returns at most `limit` rows, and whether more follow. `rows` was read with one row beyond the limit.
fn page_of<Row>(mut rows: Vec<Row>, limit: PageLimit) -> (Vec<Row>, bool) {
    let limit = limit.get() as usize;
    let more = rows.len() > limit;
    rows.truncate(limit);
    (rows, more)
}

#[derive(Debug)]
pub enum Store {
    Sqlite(Sqlite),
    /// Boxed because it is much larger than `Sqlite`.
    Postgres(Box<Postgres>),
}

impl Store {
    /// Returns the deployment that the database was created for.
    pub fn deployment(&self) -> Deployment {
        dispatch!(self, db => db.deployment)
    }

    /// Returns the id that tells the store from others: 16 hexadecimal digits.
    pub fn id(&self) -> &str {
        dispatch!(self, db => &db.id)
    }

    /// Returns whether writes outlive the process.
    pub fn is_durable(&self) -> bool {
        self.sqlite().is_none_or(|db| db.durable)
    }

    /// Returns the name and version of the database for display.
    pub fn database(&self) -> String {
        match self {
            Self::Sqlite(_) => format!("SQLite {}", rusqlite::version()),
            Self::Postgres(db) => format!("PostgreSQL {}", db.version),
        }
    }

    /// Returns the current version. `None` on PostgreSQL, where it would take a query.
    pub fn version(&self) -> Option<Version> {
        self.sqlite()?.version()
    }

    /// Returns the epoch of a version, if it is known.
    pub fn epoch(&self, version: &Version) -> Option<Epoch> {
        self.sqlite()?.epoch(version)
    }

    /// Checks that reads and writes are possible, without writing.
    pub async fn check(&self) -> Result<()> {
        match self {
            Self::Sqlite(db) => db.check(),
            Self::Postgres(db) => db.check().await,
        }
    }

    pub fn meters(&self) -> Meters<'_> {
        dispatch!(self, db => db.meters())
    }

    /// Returns the state of SQLite's disk. `None` if the system does not report it.
    pub fn disk(&self) -> Option<Disk> {
        self.sqlite()?.disk()
    }

    /// Waits for a failure that must end the process, and returns its cause.
    pub async fn failed(&self) -> String {
        match self {
            Self::Sqlite(db) => db.failed().await,
            // Connections are replaced as soon as the server is back.
            Self::Postgres(_) => std::future::pending().await,
        }
    }

    const fn sqlite(&self) -> Option<&Sqlite> {
        match self {
            Self::Sqlite(db) => Some(db),
            Self::Postgres(_) => None,
        }
    }

    /// Commits the queued writes and closes the database. Later calls fail with [`StoreError::Unavailable`].
    pub async fn close(&self) {
        dispatch!(self, db => db.close().await);
    }
}
