//! The API: one route table, a module per resource, one error type.

pub mod api_key_cache;
pub(crate) mod auth;
mod cors;
pub(crate) mod deprecation;
mod direct;
mod edge;
mod error;
mod framing;
mod health;
pub(crate) mod idempotency;
pub(crate) mod input;
pub(crate) mod json;
pub mod limits;
pub(crate) mod messages;
mod metrics;
pub mod openapi;
pub(crate) mod orders;
mod pages;
pub(crate) mod pets;
pub mod rate_limit;
pub mod requests;
mod state;
mod traffic;

use std::sync::Arc;

use axum::Router;
use axum::http::HeaderMap;
use axum::routing::{get, post};

use crate::config::{BaseUrl, Listener, Scheme};
use crate::console;
use deprecation::Deprecation;
use direct::Direct;
pub use edge::Edge;
pub use error::{ApiError, Cause, Code};
pub use framing::HasFragment;
pub use messages::parse_message;
pub use pets::{parse_new_pet, parse_pet_query};
pub use state::Api;
pub use traffic::{Connections, Expired};

/// The store listener: the animals and their orders, their document and reference, and the console.
pub fn store_listener(api: &Api) -> Edge {
    let routes = Router::new()
        .route("/v1/pets", get(pets::list).post(pets::create))
        .route("/v1/pets/{petId}", get(pets::get).fallback(deprecation::other_method))
        .route("/v1/store/orders", get(orders::list).post(orders::place))
        .route("/v1/store/orders/{orderId}/approve", post(orders::approve))
        .route("/v1/store/orders/{orderId}/deliver", post(orders::deliver))
        .route("/v1/store/orders/{orderId}/cancel", post(orders::cancel))
        .route("/openapi.json", get(openapi::serve))
        .route("/docs", get(console::docs::reference))
        .route("/docs/deprecations", get(console::docs::deprecations))
        .route("/docs/{file}", get(console::docs::asset))
        .merge(console::routes(api))
        .fallback(console::not_found);
    listener(api, Listener::Store, routes, &api.addresses.cors_origins)
        .https_only(is_https_only(api, &api.addresses.base_url))
        .answering(Direct::new(api, Listener::Store))
        .deprecating(Deprecation::of_get_pet(&api.addresses))
}

/// The messages listener. The API reference lives on the store listener and tries calls from there.
pub fn messages_listener(api: &Api) -> Edge {
    let routes =
        Router::new().route("/v1/messages", post(messages::send)).fallback(async || ApiError::route_not_found());
    let origins = [api.addresses.cors_origins.clone(), api.addresses.store_origins()].concat();
    listener(api, Listener::Messages, routes, &origins)
        .https_only(is_https_only(api, &api.addresses.messages_base_url))
        .answering(Direct::new(api, Listener::Messages))
}

/// The operations listener, for who runs the service.
pub fn operations_listener(api: &Api) -> Edge {
    let routes = Router::new().route("/metrics", get(metrics::serve)).fallback(async || ApiError::route_not_found());
    listener(api, Listener::Ops, routes, &[]).https_only(api.addresses.scheme == Scheme::Https)
}

/// Whether a listener is reached by TLS: its own, or that of the proxy in front of it.
fn is_https_only(api: &Api, public: &BaseUrl) -> bool {
    let behind_a_proxy = !api.console.admission.trusted_proxies.is_empty();
    api.addresses.scheme == Scheme::Https || (behind_a_proxy && public.is_https())
}

/// What every listener has: the health checks, and the way in and out.
fn listener(api: &Api, listener: Listener, routes: Router<Api>, origins: &[String]) -> Edge {
    let routes = routes
        .route("/livez", get(health::live))
        .route("/readyz", get(health::ready))
        .method_not_allowed_fallback(async || ApiError::method_not_allowed())
        .with_state(api.clone());
    let addresses = Arc::clone(&api.addresses);
    let store_origin = move |request: &HeaderMap| match listener {
        Listener::Messages => addresses.store_origin_beside(request),
        Listener::Store | Listener::Ops => None,
    };
    Edge::new(listener, Arc::clone(&api.traffic), routes.clone(), cors::for_origins(routes, origins, store_origin))
        .counting(Arc::clone(&api.requests))
        .limiting(api.rate_limits.clone())
}
