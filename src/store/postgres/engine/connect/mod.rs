//! Connections: how they are made, checked and limited, and their errors.

pub(in crate::store) mod connection;
pub(in crate::store) mod error;
pub(in crate::store) mod limits;
pub(in crate::store) mod pooler;
pub(in crate::store) mod server;
pub(in crate::store) mod settings;
pub(in crate::store) mod tls;
pub(in crate::store) mod url;
