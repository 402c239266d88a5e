//! The promises, in their short forms: faults are real, and every load client keeps a ledger.

mod apart;
mod backup;
mod clients;
mod clock_jumps;
mod crash;
mod database_gone;
mod dead_writer;
mod demoted;
mod descriptors;
mod drain;
mod fake_clock;
mod files_gone;
mod followers;
mod forms;
mod full_disk;
mod fuzz;
mod gone_client;
mod guessing;
mod hung_process;
mod ledger;
mod load;
mod malformed;
mod migrations;
mod misuse;
#[path = "../support/nats.rs"]
mod nats;
mod network;
mod odd_json;
mod once;
mod orders;
mod outbox;
mod overload;
#[path = "../console/person.rs"]
mod person;
#[path = "../support/postgres.rs"]
mod postgres_server;
mod power_loss;
mod process;
mod rate_limit;
mod read_only_disk;
mod restore_faults;
mod retried;
mod revoking;
mod secrets;
mod shop;
mod sign_ins;
mod slow;
mod small_disk;
mod standby;
#[path = "../support/mod.rs"]
mod support;
mod sync_error;
mod sync_order;
mod trace;
#[path = "../support/trial.rs"]
mod trial;
mod volume;
mod wal_bound;
mod without_key;
