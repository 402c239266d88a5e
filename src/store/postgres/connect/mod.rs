//! Connections: how they are made, checked, limited and replaced.

pub(in crate::store) mod connection;
pub(in crate::store) mod connections;
pub(in crate::store) mod limits;
pub(in crate::store) mod pooler;
pub(in crate::store) mod server;
pub(in crate::store) mod settings;
pub(in crate::store) mod supervisor;
pub(in crate::store) mod tls;
pub(in crate::store) mod url;
