//! The API: one operation table, a module per resource, one error type.

pub mod api_key_cache;
pub(crate) mod auth;
mod cors;
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

use std::sync::Arc;

use axum::Router;
use axum::http::HeaderMap;
use axum::routing::get;

use crate::config::{BaseUrl, Listener, Scheme};
use crate::console;
pub use error::{ApiError, Cause, Code};
pub use framing::HasFragment;
pub use messages::parse_message;
pub use middleware::ListenerService;
pub use operations::Operation;
pub use pets::{parse_new_pet, parse_pet_query};
pub use state::Api;
pub use traffic::{Connections, Expired};

/// The store listener: the animals and their orders, their document and reference, and the console.
pub fn store_listener(api: &Api) -> ListenerService {
    let pages = Router::new()
        .route("/openapi.json", get(openapi::serve))
        .route("/docs", get(console::docs::reference))
        .route("/docs/deprecations", get(console::docs::deprecations))
        .route("/docs/{file}", get(console::docs::asset))
        .method_not_allowed_fallback(async || ApiError::method_not_allowed())
        .merge(console::routes(api))
        .fallback(console::not_found)
        .with_state(api.clone());
    ListenerService::new(Listener::Store, api)
        .with_pages(pages)
        .with_cors(cors::layer(Listener::Store, &api.addresses.cors_origins, |_| None))
        .https_only(is_https_only(api, &api.addresses.base_url))
}

/// The messages listener. The API reference lives on the store listener and tries calls from there.
pub fn messages_listener(api: &Api) -> ListenerService {
    let addresses = Arc::clone(&api.addresses);
    let origins = [addresses.cors_origins.clone(), addresses.store_origins()].concat();
    let store_origin = move |request: &HeaderMap| addresses.store_origin_beside(request);
    ListenerService::new(Listener::Messages, api)
        .with_cors(cors::layer(Listener::Messages, &origins, store_origin))
        .https_only(is_https_only(api, &api.addresses.messages_base_url))
}

/// The operations listener, for who runs the service.
pub fn operations_listener(api: &Api) -> ListenerService {
    ListenerService::new(Listener::Ops, api).https_only(api.addresses.scheme == Scheme::Https)
}

/// Whether a listener is reached by TLS: its own, or that of the proxy in front of it.
fn is_https_only(api: &Api, public: &BaseUrl) -> bool {
    let behind_a_proxy = !api.console.admission.trusted_proxies.is_empty();
    api.addresses.scheme == Scheme::Https || (behind_a_proxy && public.is_https())
}
