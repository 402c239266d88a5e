//! The terminal: parsing of arguments, confirmation, progress, tables, interruption.

pub(super) mod confirm;
pub(super) mod interrupt;
pub(super) mod parse;
pub(super) mod progress;
pub(super) mod table;
