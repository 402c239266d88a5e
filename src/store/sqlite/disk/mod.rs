//! The files: the data directory, the index of the write-ahead log, and which of them belong together.

pub(in crate::store) mod atomic_file;
pub(in crate::store) mod data_dir;
pub(in crate::store) mod files;
pub(in crate::store) mod generation;
pub(in crate::store) mod lock;
pub(in crate::store) mod wal_index;
