//! The HTTP client, its TLS, and files that may hang.

pub(super) mod http_client;
pub mod regular_file;
pub(super) mod tls;
