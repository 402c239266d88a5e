//! Connections: how they are made, checked and limited.

pub(super) mod connection;
pub(super) mod connector;
pub(super) mod limits;
pub(super) mod options;
pub(super) mod pooler;
mod server;
pub(super) mod tls;
pub(super) mod url;
