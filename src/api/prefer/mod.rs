//! The `Prefer` header, and failures that it simulates.

pub(super) mod broken;
pub(crate) mod delivery;
pub(crate) mod header;
pub(super) mod preference;
pub(crate) mod preferences;
pub(super) mod request_numbers;
