//! The latest requests of each account, which the console shows.

pub(super) mod body;
pub(crate) mod recent;
pub(crate) mod record;
pub(crate) mod shown;
