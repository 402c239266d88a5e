//! The API: one route table, a module per resource, one error type.

mod auth;
mod cors;
mod deprecation;
mod direct;
mod docs;
mod edge;
mod error;
mod health;
mod input;
mod json;
pub mod limits;
mod messages;
pub mod openapi;
mod pages;
mod pets;
mod state;

use axum::Router;
use axum::routing::{get, post};

use deprecation::Deprecation;
use direct::Direct;
pub use edge::Edge;
pub use error::{ApiError, Code};
pub use pets::parse_new_pet;
pub use state::Api;

/// The store door: the animals, their document and reference.
pub fn store_door(api: &Api) -> Edge {
    let routes = Router::new()
        .route("/v1/pets", get(pets::list).post(pets::create))
        .route("/v1/pets/{petId}", get(pets::get).fallback(deprecation::other_method))
        .route("/openapi.json", get(openapi::serve))
        .route("/docs", get(docs::reference))
        .route("/docs/deprecations", get(docs::deprecations))
        .route("/docs/{file}", get(docs::asset));
    door(api, routes, &api.addresses.cors_origins)
        .answering(Direct::store(api))
        .deprecating(Deprecation::of_get_pet(&api.addresses))
}

/// The messages door. The API reference lives on the store door and tries calls from there.
pub fn messages_door(api: &Api) -> Edge {
    let routes = Router::new().route("/v1/messages", post(messages::send));
    let origins = [api.addresses.cors_origins.clone(), api.addresses.store_origins()].concat();
    door(api, routes, &origins).answering(Direct::messages(api))
}

/// The operations door, for who runs the service.
pub fn operations_door(api: &Api) -> Edge {
    door(api, Router::new(), &[])
}

/// What every door has: the health checks, one shape for what is not there, and the way in and out.
fn door(api: &Api, routes: Router<Api>, origins: &[String]) -> Edge {
    let routes = routes
        .route("/livez", get(health::live))
        .route("/readyz", get(health::ready))
        .fallback(async || ApiError::route_not_found())
        .method_not_allowed_fallback(async || ApiError::method_not_allowed())
        .with_state(api.clone());
    Edge::new(routes.clone(), cors::for_origins(routes, origins))
}
