//! The API: one operation table, a module per resource, one error type.

mod addresses;
pub mod admission;
mod cache;
mod call;
pub(crate) mod caller;
pub(crate) mod client;
pub mod counters;
pub(crate) mod dispatch;
pub mod documents;
mod endpoints;
mod error;
mod execute;
pub(crate) mod input;
mod operations;
pub(crate) mod prefer;
pub(crate) mod recorder;
mod response;
pub(crate) mod service;
mod simulation;
mod state;
mod unmatched;

pub use addresses::{Addresses, BaseUrl, reachable};
pub use admission::rate_limit::RateLimit;
pub use client::Network;
pub use documents::file::File;
pub use endpoints::messages::parse_message;
pub use endpoints::pets::parse_new_pet;
pub use error::{ApiError, Cause};
pub use input::pagination::query as parse_page_query;
pub use operations::{Listener, Operation, Permission, Target};
pub use prefer::header::parse as parse_prefer;
pub use service::listener_service::ListenerService;
pub use state::{Api, ApiSettings, BackupStatus, PasswordCounters};
