//! Commands on the database as a whole, and how commands open it.

pub(super) mod backup;
pub(super) mod copy_to_postgres;
pub(super) mod database;
pub(super) mod export;
pub(super) mod migrate;
