//! The promises, in their short forms: faults are real, and every load client keeps a ledger.

mod crash;
mod database_gone;
mod demoted;
mod migrations;
mod network;
mod orders;
#[path = "../support/postgres.rs"]
mod postgres_server;
mod process;
mod revoking;
mod standby;
mod trial;
