//! The API: one operation table, a module per resource, one error type.

pub mod api_key_cache;
pub(crate) mod auth;
mod call;
pub(crate) mod client_address;
mod cors;
pub(crate) mod deprecation;
mod dispatch;
mod error;
mod framing;
mod health;
pub(crate) mod idempotency;
pub(crate) mod input;
mod json;
mod messages;
mod metrics;
mod middleware;
pub mod openapi;
mod operations;
mod orders;
mod page_cache;
mod pagination;
mod pet_counts;
mod pets;
pub mod rate_limit;
pub mod request_history;
mod request_id;
mod response;
mod state;
mod traffic;

pub use error::{ApiError, Cause, Code};
pub use messages::parse_message;
pub use middleware::{ListenerService, Sent};
pub use operations::Operation;
pub use pets::{parse_new_pet, parse_pet_query};
pub use response::Response;
pub use state::{Api, PasswordCounters};
