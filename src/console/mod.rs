//! The console: pages for people, on the store listener. They call the same `Store`, the same parsers and, where they show
//! what the API answers, the same handlers.

mod error;
mod form;
mod layout;
mod middleware;
mod pages;
mod session;
mod shown;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::http::header::ACCEPT;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::api::{Api, ApiError, Listener};
use crate::telemetry::Sampler;
use error::PageError;
use layout::{NO_SECTION, Site, error_page, page};
use session::{CurrentUser, PasswordHasher, Throttle, cookie_name};
pub use shown::sample_request::shell_quoted;

/// The console's state: the API's, and what only the pages need.
#[derive(Debug)]
pub struct Console {
    pub api: Arc<Api>,
    /// True if anybody may create an account.
    pub may_sign_up: bool,
    /// Name of the session cookie.
    cookie_name: String,
    passwords: PasswordHasher,
    throttle: Throttle,
    /// Samples warnings about session uses that could not be stored.
    pub unstored_sessions: Sampler,
    /// Samples warnings about wrong passwords, by account.
    pub wrong_passwords: Sampler,
}

impl Console {
    pub fn new(api: Arc<Api>, may_sign_up: bool) -> Self {
        Self {
            may_sign_up,
            cookie_name: cookie_name(api.store.id(), &api.addresses.base_url),
            passwords: PasswordHasher::new(Arc::clone(&api.password_counters)),
            throttle: Throttle::new(),
            unstored_sessions: Sampler::new(|error, uses| tracing::warn!(uses, error, "session uses not stored")),
            wrong_passwords: Sampler::new(|account, attempts| tracing::warn!(attempts, account, "wrong passwords")),
            api,
        }
    }
}

/// The routes of all pages, of the documentation and of the files that they load. Answers 404 to all other paths.
pub fn routes(console: &Arc<Console>) -> Router {
    let docs = Router::new()
        .route("/docs", get(pages::docs::reference))
        .route("/docs/deprecations", get(pages::docs::deprecations))
        .route("/docs/{file}", get(pages::docs::asset))
        .method_not_allowed_fallback(async || ApiError::method_not_allowed().answer());
    let pages = Router::new()
        .route("/", get(pages::overview::show))
        .route("/sign-up", get(pages::sign_up::show).post(pages::sign_up::submit))
        .route("/sign-in", get(pages::sign_in::show).post(pages::sign_in::submit))
        .route("/sign-in/turn", get(pages::sign_in::turn))
        // A GET does not sign out, because it changes nothing.
        .route("/sign-out", get(async |user: CurrentUser| user.redirect("")).post(pages::sign_in::sign_out))
        .route("/account", get(pages::account::show))
        .route("/account/password", get(pages::account::show).post(pages::account::change_password))
        .route("/account/delete", get(pages::account::confirm_deletion).post(pages::account::delete))
        .route("/keys", get(pages::keys::list))
        .route("/keys/new", get(pages::keys::new).post(pages::keys::create))
        .route("/keys/{id}/rotate", get(pages::keys::confirm_rotation).post(pages::keys::rotate))
        .route("/keys/{id}/revoke", get(pages::keys::confirm_revocation).post(pages::keys::revoke))
        .route("/animals", get(pages::pets::list))
        .route("/animals/new", get(pages::pets::new).post(pages::pets::create))
        .route("/animals/{id}/order", get(pages::orders::show_pet).post(pages::orders::place_from_list))
        .route("/orders", get(pages::orders::list).post(pages::orders::place))
        .route(
            "/orders/steps",
            get(async |user: CurrentUser| user.redirect("orders")).post(pages::orders::step_selected),
        )
        // The address of a step stays in the browser's address bar.
        .route("/orders/{id}/{step}", get(async |user: CurrentUser| user.redirect("orders")).post(pages::orders::step))
        .route("/messages", get(pages::messages::list).post(pages::messages::send))
        .route("/audit", get(pages::audit::list))
        .route("/audit/link", get(async |user: CurrentUser| user.redirect("audit")).post(pages::link::make))
        .route("/password/{token}", get(pages::link::show).post(pages::link::submit))
        .route("/requests", get(pages::requests::list))
        .route("/requests/{id}", get(pages::requests::show))
        .route("/reset", get(pages::reset::confirm).post(pages::reset::reset));
    docs.merge(framed(console, pages)).fallback(not_found).with_state(Arc::clone(console))
}

/// Wraps `pages` in the middleware of every page.
pub fn framed(console: &Arc<Console>, pages: Router<Arc<Console>>) -> Router<Arc<Console>> {
    pages
        .method_not_allowed_fallback(async || PageError::method_not_allowed())
        .layer(from_fn_with_state(Arc::clone(console), middleware::frame))
}

/// The first parts of the paths of pages that require a session.
const SECTIONS: [&str; 8] = ["account", "animals", "audit", "keys", "messages", "orders", "requests", "reset"];

/// The 404 response of the store listener: a page for browsers and below the console's paths, otherwise the API's error.
pub async fn not_found(State(console): State<Arc<Console>>, request: Request) -> Response {
    /// As in `/keys/{id}/rotate`. Each link of a page leads back from its depth, so a page for a path of thousands of
    /// slashes would be many times as long as the path.
    const DEEPEST: usize = 16;
    let path = request.uri().path();
    let section = path.split('/').nth(1).unwrap_or_default();
    let is_page = SECTIONS.contains(&section) || ["sign-in", "sign-out", "sign-up"].contains(&section);
    let is_for_people = is_page || (section != "v1" && accepts_pages(request.headers()));
    if !is_for_people || path.matches('/').count() > DEEPEST {
        return console.api.path_not_found(Listener::Store, request.headers(), path).answer().into_response();
    }
    let user = CurrentUser::new(&console, &request).or_signed_out().await;
    error_page(&user, PageError::not_found("There is no page at this address."))
}

/// Returns whether the client names `text/html` in `Accept`, as browsers do when they open a page.
fn accepts_pages(headers: &HeaderMap) -> bool {
    let types = headers.get_all(ACCEPT).iter().filter_map(|types| types.to_str().ok());
    let mut types = types.flat_map(|types| types.split(',')).filter_map(|range| range.split(';').next());
    types.any(|essence| essence.trim().eq_ignore_ascii_case("text/html"))
}
