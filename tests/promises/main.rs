//! The promises, in their short forms: faults are real, and every load client keeps a ledger.

mod clock_jumps;
mod crash;
mod database_gone;
mod dead_writer;
mod demoted;
mod full_disk;
mod ledger;
mod load;
mod migrations;
mod network;
#[path = "../console/person.rs"]
mod person;
#[path = "../support/postgres.rs"]
mod postgres_server;
mod power_loss;
mod process;
mod read_only_disk;
mod revoking;
mod small_disk;
mod standby;
#[path = "../support/mod.rs"]
mod support;
mod sync_error;
mod sync_order;
mod trace;
mod trial;
mod volume;
mod wal_bound;
