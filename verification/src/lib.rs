//! Load, faults, and the ledgers that compare the outcome of both with a database. The tests of this package use them.

pub mod fake_clock;
pub mod injected;
mod ledger;
pub mod load;
pub mod network;
mod postgres_pair;
pub mod sectors;
mod small_disk;
pub mod trace;
pub mod volume;
pub mod writers;

pub use fake_clock::FakeClock;
pub use ledger::{Differences, Ledger};
pub use load::Load;
pub use network::Network;
pub use postgres_pair::PostgresPair;
pub use small_disk::{SmallDisk, read_only};
pub use writers::Writers;
