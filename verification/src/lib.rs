//! Load, and the ledgers that compare its outcome with a database. The tests of `tests/promises` and `tests/simulation` use it.

mod ledger;
pub mod load;
pub mod sectors;
pub mod writers;

pub use ledger::{Differences, Ledger};
pub use load::Load;
pub use writers::Writers;
