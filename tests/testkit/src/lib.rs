//! What the tests share: processes, databases, brokers and certificates to run them with, clients, load and a ledger.
//!
//! Nothing here depends on petstore, so this crate is compiled once and a change in `src/` does not rebuild it. The
//! service that runs inside a test process is `tests/service`.

pub mod blocking;
mod client;
pub mod console;
mod database;
mod ledger;
pub mod load;
pub mod nats;
pub mod postgres;
mod process;
mod tls;
pub mod trial;
mod wait;
pub mod writers;

pub use client::{Request, Response, raw, read_response, read_response_from, read_to_end};
pub use console::ConsoleUser;
pub use database::{Database, SERVE};
pub use ledger::{Differences, Ledger};
pub use load::Load;
pub use nats::NatsServer;
pub use postgres::PostgresServer;
pub use process::{Ended, Folder, Process, Server, Signal, petstore};
pub use tls::Certificate;
pub use trial::Random;
pub use wait::{TIMEOUT, soon, within};
pub use writers::Writers;
