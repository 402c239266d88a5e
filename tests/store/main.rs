//! The store: stories on both databases, and behaviour specific to each.

mod audit;
mod crossing;
mod erasure;
mod fixtures;
mod large_writes;
mod migrations;
mod orders;
mod outbox;
mod pooler;
mod reset;
mod stories;
mod tls;
