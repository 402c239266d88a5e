//! The files: their folder, the index of the write-ahead log, and which of them belong together.

pub mod atomic_file;
pub mod files;
pub mod folder;
pub mod generation;
pub mod lock;
pub mod wal_index;
