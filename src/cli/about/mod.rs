//! Commands that show what the program is and how it is configured.

pub(super) mod completions;
pub(super) mod config;
pub(super) mod manual;
pub(super) mod openapi;
