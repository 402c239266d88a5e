//! The terminal: passwords to hide, hidden input, confirmation, progress, tables, interruption.

pub(super) mod confirm;
pub(super) mod hidden_input;
pub(super) mod interrupt;
pub(super) mod passwords;
pub(super) mod progress;
pub(super) mod table;
