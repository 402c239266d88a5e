//! Which requests are admitted: API keys and rate limits.

pub mod keys;
pub mod rate_limit;
