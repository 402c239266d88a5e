//! The promises, in their short forms: faults are real, and every load client keeps a ledger.

mod apart;
mod clients;
mod crash;
mod database_gone;
mod demoted;
mod descriptors;
mod drain;
mod fuzz;
mod malformed;
mod migrations;
mod network;
mod odd_json;
mod overload;
#[path = "../console/person.rs"]
mod person;
#[path = "../support/postgres.rs"]
mod postgres_server;
mod process;
mod revoking;
mod secrets;
mod sign_ins;
mod slow;
mod standby;
#[path = "../support/mod.rs"]
mod support;
mod trial;
mod without_key;
