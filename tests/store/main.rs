//! The store: one suite of stories for every database it can lie on, and what is particular to each.

mod backends;
mod sqlite;
mod stories;
