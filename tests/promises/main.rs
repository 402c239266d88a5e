//! The promises, in their short forms: faults are real, and every load client keeps a ledger.

mod crash;
mod process;
