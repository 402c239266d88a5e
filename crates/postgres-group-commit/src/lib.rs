#![doc = include_str!("../README.md")]
#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod batch;
mod cluster;
mod commit;
mod connect;
mod error;
mod observer;
mod readers;
mod single;
mod supervisor;
pub mod tls;

pub use batch::reads::{Pending, Read, ReadBatcher};
pub use batch::write::Write;
pub use batch::writer::WriteQueue;
pub use cluster::Cluster;
pub use connect::connection::{Connection, PreparedConnection};
pub use connect::options::Options;
pub use connect::url::DatabaseUrl;
pub use error::{Error, InvalidUrl, Result, timed_out, within};
pub use observer::Observer;
pub use readers::Readers;
pub use single::SingleWrites;
pub use tokio_postgres;
