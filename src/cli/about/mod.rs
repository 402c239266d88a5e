//! Commands that show what the program is and how it is configured.

pub(super) mod config;
pub(super) mod generated;
pub(super) mod openapi;
