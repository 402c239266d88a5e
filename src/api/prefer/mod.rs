//! The `Prefer` header, and failures that it simulates.

pub(crate) mod delivery;
pub(crate) mod header;
pub(super) mod preference;
pub(crate) mod preferences;
