//! Limits of a request.

/// Maximum size of a request body, in bytes.
pub const BODY: usize = 64 * 1024;
