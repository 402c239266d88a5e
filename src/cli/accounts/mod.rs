//! Commands on accounts, API keys and the audit.

pub(super) mod account;
pub(super) mod audit;
pub(super) mod key;
mod personal_data;
