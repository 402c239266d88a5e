//! The writer: a queue of jobs, a thread that commits them in groups, and the write-ahead log.

pub mod connection;
pub mod job;
pub mod new_row;
pub mod queue;
pub mod wal;
pub mod writer;
