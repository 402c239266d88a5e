//! Time, threads and retries.

pub mod backoff;
pub mod clock;
pub mod workers;
