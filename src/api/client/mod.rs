//! The addresses of clients.

pub(crate) mod address;
pub(super) mod network;
