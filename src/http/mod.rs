//! The API: one operation table, a module per resource, one error type.

pub mod api_key_cache;
pub(crate) mod auth;
pub(crate) mod client_address;
pub(crate) mod cors;
pub(crate) mod deprecation;
mod error;
mod framing;
mod health;
pub(crate) mod idempotency;
pub(crate) mod input;
pub(crate) mod json;
pub mod limits;
pub(crate) mod messages;
mod metrics;
mod middleware;
pub mod openapi;
mod operations;
pub(crate) mod orders;
mod page_cache;
mod pagination;
pub(crate) mod pets;
pub mod rate_limit;
mod request_context;
mod request_id;
pub mod requests;
mod state;
mod traffic;

pub use error::{ApiError, Cause, Code};
pub use messages::parse_message;
pub use middleware::{ListenerService, Sent};
pub use operations::Operation;
pub use pets::{parse_new_pet, parse_pet_query};
pub use state::{Api, PasswordCounters};
