//! The store: one suite of stories for every database it can lie on, and what is particular to each.

mod backends;
mod crossing;
mod idempotency;
mod migrations;
mod orders;
mod outbox;
mod pooler;
mod postgres;
mod sqlite;
mod stories;
mod tls;
