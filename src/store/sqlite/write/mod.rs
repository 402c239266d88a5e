//! The writer: a queue of jobs, a thread that commits them in groups, and the write-ahead log.

pub(in crate::store) mod connection;
pub(in crate::store) mod job;
pub(in crate::store) mod new_row;
pub(in crate::store) mod queue;
pub(in crate::store) mod wal;
pub(in crate::store) mod writer;
