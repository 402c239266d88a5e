//! The middleware of all pages.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use futures_util::FutureExt;

use super::form::submission;
use super::pages::docs;
use super::session::{CurrentUser, origin};
use super::{Console, PageError, error_page};
use crate::api::Cause;

/// Rejects forms of other sites, finds the current user, and renders errors as pages.
pub async fn frame(State(console): State<Arc<Console>>, request: Request, next: Next) -> Response {
    let mut user = CurrentUser::new(&console, &request);
    respond(&mut user, request, next).await.unwrap_or_else(|error| error_page(&user, error))
}

async fn respond(user: &mut CurrentUser, mut request: Request, next: Next) -> Result<Response, PageError> {
    let addresses = &user.api().addresses;
    if !request.method().is_safe() {
        if !origin::is_ours(request.headers(), addresses) {
            let from = match addresses.base_url.is_at_any_host() {
                true => "sent from another site".to_owned(),
                false => format!("not sent from {}", addresses.base_url.origin()),
            };
            return Err(PageError::forbidden(format!("This form was {from}, so nothing was changed.")));
        }
        submission::read(&mut request).await?;
    } else if let Some(elsewhere) = docs::at_own_address(addresses, request.uri(), request.headers()) {
        return Ok(elsewhere);
    }
    user.find_session().await?;
    request.extensions_mut().insert(user.clone());
    let responded = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    // The listener's service would catch it too, but respond with JSON.
    let mut response = responded.map_err(|panic| PageError::internal(Cause::of_panic(&*panic)))?;
    response.extensions_mut().remove().map_or(Ok(response), Err)
}
