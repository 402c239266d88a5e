//! Answers kept in memory until a commit may have changed them.

pub(super) mod pages;
pub(super) mod pet_counts;
