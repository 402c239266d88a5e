//! What happens around every page of the console.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;

use super::current_user::CurrentUser;
use super::error::PageError;
use super::{docs, origin};
use crate::http::{Api, Cause};

/// Refuses forms of other sites, finds out who looks, and shows what failed as a page.
pub async fn frame(State(api): State<Api>, mut request: Request, next: Next) -> Response {
    if !request.method().is_safe() && !origin::is_ours(request.headers(), &api.addresses) {
        let error = PageError::forbidden("This form was sent from another site, so nothing was changed.");
        return error.into_page(&api, &CurrentUser::stranger(&api, request.uri()));
    }
    if request.method().is_safe()
        && let Some(elsewhere) = docs::at_own_address(&api.addresses, request.uri(), request.headers())
    {
        return elsewhere;
    }
    let user = match CurrentUser::of(&api, request.uri(), request.headers()).await {
        Ok(user) => Arc::new(user),
        Err(error) => return PageError::from(error).into_page(&api, &CurrentUser::stranger(&api, request.uri())),
    };
    request.extensions_mut().insert(Arc::clone(&user));
    let mut response = match AssertUnwindSafe(next.run(request)).catch_unwind().await {
        Ok(response) => response,
        // The edge would catch it too, and answer as the API does.
        Err(panic) => PageError::internal(Cause::of_panic(&*panic)).into_response(),
    };
    match response.extensions_mut().remove::<PageError>() {
        Some(error) => error.into_page(&api, &user),
        None => response,
    }
}
