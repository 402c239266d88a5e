//! The promises, in their short forms: faults are real, and every load client keeps a ledger.

mod crash;
mod database_gone;
mod demoted;
mod guessing;
mod migrations;
mod network;
mod person;
#[path = "../support/postgres.rs"]
mod postgres_server;
mod process;
mod rate_limit;
mod revoking;
mod standby;
mod trial;
