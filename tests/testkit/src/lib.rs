//! Fixtures that the tests share: processes, databases, brokers, endpoints, certificates and clients.
//!
//! The crate does not depend on petstore, so a change in `src/` does not rebuild it. The service that runs inside a test
//! process is `tests/service`.

pub mod bridge;
mod client;
pub mod console;
mod database;
pub mod endpoint;
mod folder;
pub mod nats;
pub mod postgres;
mod process;
pub mod relayed;
mod server;
mod shop;
mod stop;
mod tls;
pub mod trial;
mod wait;

pub use bridge::Bridge;
pub use client::{
    Connection, Request, Response, fields, is_complete, new_message, new_pet, pet_with_all_fields, raw, read_response,
    read_response_from, read_to_end,
};
pub use console::ConsoleUser;
pub use database::{Database, FREE_PORTS, succeed};
pub use endpoint::Endpoint;
pub use folder::Folder;
pub use nats::NatsServer;
pub use postgres::PostgresServer;
pub use process::{Ended, Keeper, Killed, Process, Signal, petstore, root, server_program};
pub use relayed::RelayedShop;
pub use server::Server;
pub use shop::Shop;
pub use stop::{Stop, StopOnDrop};
pub use tls::Certificate;
pub use trial::Random;
pub use wait::{TIMEOUT, eventually, soon, until, within};
