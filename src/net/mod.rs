//! The HTTP client, and files that may hang.

pub(super) mod http_client;
pub mod regular_file;
