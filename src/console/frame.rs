//! What happens around every page of the console.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;

use super::error::PageError;
use super::origin;
use super::visitor::Visitor;
use crate::http::{Api, Cause, docs};

/// Refuses forms of other sites, finds out who looks, and shows what failed as a page.
pub async fn frame(State(api): State<Api>, mut request: Request, next: Next) -> Response {
    if !request.method().is_safe() && !origin::is_ours(request.headers(), &api.addresses) {
        let error = PageError::forbidden("This form was sent from another site, so nothing was done.");
        return error.into_page(&api, &Visitor::stranger(&api, request.uri()));
    }
    if request.method().is_safe()
        && let Some(elsewhere) = docs::at_own_address(&api.addresses, request.uri(), request.headers())
    {
        return elsewhere;
    }
    let visitor = match Visitor::of(&api, request.uri(), request.headers()).await {
        Ok(visitor) => Arc::new(visitor),
        Err(error) => return PageError::from(error).into_page(&api, &Visitor::stranger(&api, request.uri())),
    };
    request.extensions_mut().insert(Arc::clone(&visitor));
    let mut response = match AssertUnwindSafe(next.run(request)).catch_unwind().await {
        Ok(response) => response,
        // The edge would catch it too, and answer as the API does.
        Err(panic) => PageError::internal(Cause::of_panic(&*panic)).into_response(),
    };
    match response.extensions_mut().remove::<PageError>() {
        Some(error) => error.into_page(&api, &visitor),
        None => response,
    }
}
