//! The API, over real sockets: a test reads as given, when, then.

mod pets;
#[path = "../support/mod.rs"]
mod support;
