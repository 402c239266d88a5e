//! Group commit for PostgreSQL: batches of writes and of reads, connections that are replaced when they are lost, and one
//! server for all of them.

pub(in crate::store) mod batch;
pub(in crate::store) mod commit;
pub(in crate::store) mod connect;
pub(in crate::store) mod connections;
pub(in crate::store) mod readers;
pub(in crate::store) mod supervisor;
