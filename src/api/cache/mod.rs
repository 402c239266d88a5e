//! Pages kept in memory until a commit may have changed them, and counts kept for at most a minute.

pub(super) mod pages;
pub(super) mod pet_counts;
