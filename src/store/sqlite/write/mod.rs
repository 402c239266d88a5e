//! The writer: a queue of jobs, a thread that commits them in groups.

pub(in crate::store) mod connection;
pub(in crate::store) mod job;
pub(in crate::store) mod new_row;
pub(in crate::store) mod queue;
pub(in crate::store) mod writer;
