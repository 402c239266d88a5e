//! Fixtures that the tests share: processes, databases, brokers, endpoints, certificates, clients, load generators and a ledger.
//!
//! The crate does not depend on petstore, so a change in `src/` does not rebuild it. The service that runs inside a test
//! process is `tests/service`.

pub mod bridge;
mod client;
pub mod console;
mod database;
pub mod endpoint;
mod folder;
mod ledger;
pub mod load;
pub mod nats;
pub mod postgres;
mod process;
pub mod relayed;
pub mod sectors;
mod server;
mod shop;
mod stop;
mod tls;
pub mod trial;
mod wait;
pub mod writers;

pub use bridge::Bridge;
pub use client::{
    Connection, Request, Response, fields, new_message, new_pet, pet_with_all_fields, raw, read_response,
    read_response_from, read_to_end,
};
pub use console::ConsoleUser;
pub use database::{Database, FREE_PORTS, succeed};
pub use endpoint::Endpoint;
pub use folder::Folder;
pub use ledger::{Differences, Ledger};
pub use load::Load;
pub use nats::NatsServer;
pub use postgres::PostgresServer;
pub use process::{Ended, Keeper, Killed, Process, Signal, petstore, server_program};
pub use relayed::RelayedShop;
pub use server::Server;
pub use shop::Shop;
pub use stop::{Stop, StopOnDrop};
pub use tls::Certificate;
pub use trial::Random;
pub use wait::{TIMEOUT, eventually, soon, until, within};
pub use writers::Writers;
