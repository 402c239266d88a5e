//! Which requests are admitted: API keys and rate limits.

pub mod keys;
pub(super) mod limit;
pub mod rate_limit;
