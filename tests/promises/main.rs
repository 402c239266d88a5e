//! The promises, in their short forms: faults are real, and every load client keeps a ledger.

mod crash;
mod database_gone;
mod demoted;
mod ledger;
mod load;
mod migrations;
mod network;
#[path = "../support/postgres.rs"]
mod postgres_server;
mod power_loss;
mod process;
mod revoking;
mod standby;
mod sync_error;
mod sync_order;
mod trace;
mod trial;
mod volume;
