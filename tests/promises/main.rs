//! The promises, in their short forms: faults are real, and every load client keeps a ledger.

mod crash;
mod database_gone;
mod demoted;
mod gone_client;
mod migrations;
mod misuse;
mod network;
mod once;
mod orders;
#[path = "../support/postgres.rs"]
mod postgres_server;
mod process;
mod retried;
mod revoking;
mod shop;
mod standby;
mod trial;
