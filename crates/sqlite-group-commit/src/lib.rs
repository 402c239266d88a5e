#![doc = include_str!("../README.md")]
//!
//! # SQLite's compile options
//!
//! The guarantees hold with rusqlite's default flags; an SQLite with known corruption bugs does not compile. `.cargo/config.toml`
//! of the repository sets `LIBSQLITE3_FLAGS` for speed only: `fdatasync`, no mutexes, no statistics, and no temporary files for
//! savepoints.
#![deny(missing_docs)]

mod backup;
mod connection;
mod database;
mod disk;
mod error;
mod history;
mod observer;
mod open;
mod options;
mod read_only;
mod readers;
mod schema;
mod write;

pub use backup::{Progress, Target, back_up_unmigrated, restore};
pub use database::Database;
pub use disk::atomic_file::{AtomicFile, folder_of};
pub use disk::folder::{Folder, FolderLock, make_folder, own_file};
pub use disk::wal_index::Version;
pub use error::{Error, Result};
pub use history::{Effect, Epoch};
pub use observer::Observer;
pub use open::connect_unmigrated;
pub use options::Options;
pub use rusqlite;
pub use schema::{Schema, Steps};
pub use write::connection::WriteConnection;
pub use write::job::{Atomicity, Insert};
pub use write::new_row::{NewRow, ROWS};
#[doc(hidden)] // for simulations
pub use write::writer::Writer;
