//! The middleware of all pages.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;

use super::form::submission;
use super::pages::docs;
use super::session::{CurrentUser, origin};
use super::{Console, PageError, error_page};
use crate::api::Cause;

/// Rejects forms of other sites, finds the current user, and renders errors as pages.
pub async fn frame(State(console): State<Arc<Console>>, mut request: Request, next: Next) -> Response {
    let mut user = CurrentUser::new(&console, &request);
    let addresses = &console.api.addresses;
    if request.method().is_safe() {
        if let Some(elsewhere) = docs::at_own_address(addresses, request.uri(), request.headers()) {
            return elsewhere;
        }
    } else if !origin::is_ours(request.headers(), addresses) {
        let error = PageError::forbidden("This form was sent from another site, so nothing was changed.");
        return error_page(&user, error);
    } else if let Err(error) = submission::read(&mut request).await {
        return error_page(&user, error);
    }
    if let Err(error) = user.find_session().await {
        return error_page(&user, error.into());
    }
    request.extensions_mut().insert(user.clone());
    let mut response = match AssertUnwindSafe(next.run(request)).catch_unwind().await {
        Ok(response) => response,
        // The listener's service would catch it too, but respond with JSON.
        Err(panic) => PageError::internal(Cause::of_panic(&*panic)).into_response(),
    };
    match response.extensions_mut().remove() {
        Some(error) => error_page(&user, error),
        None => response,
    }
}
