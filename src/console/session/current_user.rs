//! The user of a page, signed in or not: the session behind the cookie.

use std::convert::Infallible;
use std::ops::Deref;
use std::sync::Arc;

use axum::extract::{FromRequestParts, Request};
use axum::http::header::{CACHE_CONTROL, COOKIE, LOCATION, SET_COOKIE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};

use crate::api::client::{Peer, client_address};
use crate::api::{Addresses, Api, BaseUrl, Listener};
use crate::console::form::Form;
use crate::console::{Console, PageError, SECTIONS};
use crate::domain::{Actor, Email, Session, SessionHash, SessionToken};
use crate::store;

/// A redirect would lose what was typed.
const SIGNED_OUT: &str = "You are not signed in. Sign in on another tab, then reload this page to send the form again.";

/// The user of a page, signed in or not.
#[derive(Clone, Debug)]
pub struct CurrentUser {
    pub console: Arc<Console>,
    /// Relative path from the page to the root of our paths, so that links work behind a path prefix.
    pub root: String,
    /// The addresses by which this user reaches the service.
    pub addresses: Arc<Addresses>,
    /// The network address of the client, not that of a trusted proxy, and the id of the request.
    pub client: Peer,
    /// A message from the previous page.
    pub notice: Option<&'static str>,
    pub session: Option<Session>,
    /// The session that the cookie names. It may have ended.
    presented: Option<SessionHash>,
}

impl CurrentUser {
    /// Returns the user of a request, not yet signed in.
    pub fn new(console: &Arc<Console>, request: &Request) -> Self {
        let (uri, headers) = (request.uri(), request.headers());
        let depth = uri.path().matches('/').count().saturating_sub(1);
        let peer: &Peer = request.extensions().get().expect("the listener's service adds it");
        let client = client_address(peer.address, headers, &console.api.trusted_proxies);
        Self {
            console: Arc::clone(console),
            root: if depth == 0 { "./".to_owned() } else { "../".repeat(depth) },
            addresses: console.api.addresses.reached_by(Listener::Store, headers),
            client: Peer { address: client, ..peer.clone() },
            notice: notice(uri),
            session: None,
            presented: cookie(headers, &console.cookie_name).and_then(SessionToken::hash_presented),
        }
    }

    /// Signs the user in, if the session of the cookie lasts.
    pub async fn find_session(&mut self) -> store::Result<()> {
        let Some(hash) = &self.presented else { return Ok(()) };
        let api = &self.console.api;
        let now = api.clock.steady();
        self.session = api.store.find_session(hash).await?.filter(|session| session.lasts(now));
        if self.session.as_ref().is_some_and(|session| session.is_stale(now))
            && let Err(error) = api.store.touch_session(*hash, now.to_the_minute()).await
        {
            // The page can be shown. Only the session ends a little earlier.
            let error = error.to_string();
            if self.console.unstored_sessions.is_first(&error) {
                tracing::warn!(error, "session use not stored");
            }
        }
        Ok(())
    }

    /// Returns the user of a public page. If the session cannot be read, the user counts as signed out.
    pub async fn or_signed_out(mut self) -> Self {
        let _ = self.find_session().await;
        self
    }

    pub fn api(&self) -> &Api {
        &self.console.api
    }

    /// Returns the user of `account` as the actor of a change, for the audit.
    pub fn actor_of(&self, account: &Email) -> Actor {
        self.client.actor(account.as_str().to_owned(), self.client.address, self.api().clock.now())
    }

    /// Redirects to another page with GET.
    pub fn redirect(&self, path: &str) -> Response {
        let to = HeaderValue::try_from(format!("{}{path}", self.root));
        let to = to.expect("our paths have visible ASCII characters only");
        (StatusCode::SEE_OTHER, [(LOCATION, to), (CACHE_CONTROL, HeaderValue::from_static("no-store"))]).into_response()
    }

    /// Redirects to the sign-in page, which leads back to the requested page.
    fn redirect_to_sign_in(&self, request: &Parts) -> Response {
        let mut query = form_urlencoded::Serializer::for_suffix("sign-in?".to_owned(), "sign-in?".len());
        if self.presented.is_some() {
            query.append_pair("notice", "session-ended");
        }
        let page = request.uri.path_and_query().and_then(|page| page.as_str().strip_prefix('/'));
        if let Some(page) = page.and_then(page_to_return_to) {
            query.append_pair("page", page);
        }
        self.redirect(query.finish().trim_end_matches('?'))
    }

    /// Redirects, with the cookie of a new session.
    pub fn redirect_signed_in(&self, path: &str, token: &SessionToken) -> Response {
        self.redirect_with_cookie(path, token.expose(), "")
    }

    /// Redirects, and removes the session cookie.
    pub fn redirect_signed_out(&self, path: &str) -> Response {
        self.redirect_with_cookie(path, "", "; Max-Age=0")
    }

    fn redirect_with_cookie(&self, path: &str, value: &str, age: &str) -> Response {
        let (name, base_url) = (&self.console.cookie_name, &self.api().addresses.base_url);
        let scope = if base_url.path().is_empty() { "/" } else { base_url.path() };
        // Not readable by scripts, and not sent with forms of other sites.
        let secure = if base_url.is_https() { "; Secure" } else { "" };
        let cookie = format!("{name}={value}; Path={scope}; HttpOnly; SameSite=Lax{secure}{age}");
        let mut cookie = HeaderValue::try_from(cookie).expect("a token and a store's id have hexadecimal digits only");
        cookie.set_sensitive(true);
        let mut response = self.redirect(path);
        response.headers_mut().insert(SET_COOKIE, cookie);
        response
    }
}

impl<S: Sync> FromRequestParts<S> for CurrentUser {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get::<Self>().expect("the middleware finds the user").clone())
    }
}

/// The user of a page that requires a session. Others are redirected to the sign-in page, or get 403 for a form.
pub struct SignedIn {
    user: CurrentUser,
    pub session: Session,
}

impl<S: Sync> FromRequestParts<S> for SignedIn {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        let Ok(user) = CurrentUser::from_request_parts(parts, state).await;
        match user.session.clone() {
            Some(session) => Ok(Self { user, session }),
            None if parts.method == Method::POST => Err(PageError::forbidden(SIGNED_OUT).into_response()),
            None => Err(user.redirect_to_sign_in(parts)),
        }
    }
}

impl SignedIn {
    /// Returns the user as the actor of a change, for the audit.
    pub fn actor(&self) -> Actor {
        self.actor_of(&self.session.email)
    }
}

impl Deref for SignedIn {
    type Target = CurrentUser;

    fn deref(&self) -> &CurrentUser {
        &self.user
    }
}

/// Returns `page` if it is the path and query of a page that requires a session, so that no link leads elsewhere.
pub fn page_to_return_to(page: &str) -> Option<&str> {
    const LONGEST: usize = 200;
    let (path, query) = page.split_once('?').unwrap_or((page, ""));
    let section = path.split('/').next().unwrap_or_default();
    let has_only = |text: &str, marks: &[u8]| text.bytes().all(|it| it.is_ascii_alphanumeric() || marks.contains(&it));
    let is_plain = has_only(path, b"/-_") && has_only(query, b"&=-_.,:@+%");
    (SECTIONS.contains(&section) && is_plain && page.len() <= LONGEST).then_some(page)
}

/// Returns the name of a store's cookie. The stores of a host share its cookies on all ports (RFC 6265, section 8.5).
/// Browsers accept the prefixes only over TLS, and `__Host-` only with `Path=/` (RFC 6265bis, section 4.1.3).
pub fn cookie_name(store_id: &str, base_url: &BaseUrl) -> String {
    let prefix = match (base_url.is_https(), base_url.path()) {
        (false, _) => "",
        (true, "") => "__Host-",
        (true, _) => "__Secure-",
    };
    format!("{prefix}petstore-{store_id}")
}

fn cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    // As bytes, because another site's cookie, which need not be ASCII, must not hide this one.
    let pairs = headers.get_all(COOKIE).iter().flat_map(|cookies| cookies.as_bytes().split(|byte| *byte == b';'));
    pairs.filter_map(|pair| str::from_utf8(pair).ok()).find_map(|pair| {
        let (found, value) = pair.trim().split_once('=')?;
        (found == name).then_some(value)
    })
}

/// Returns the message that the query selects. Only these texts can be shown, so a link cannot put words into the page.
fn notice(uri: &Uri) -> Option<&'static str> {
    Some(match Form::of_query(uri).get("notice") {
        "account-deleted" => "Your account was deleted. Its API keys no longer work.",
        "key-revoked" => "The key was revoked. It no longer works.",
        "password-changed" => "Your password was changed. All your other sessions have ended.",
        "password-chosen" => "Your password was changed. Sign in with it.",
        "session-ended" => "Your session has ended. Sign in to continue.",
        "store-reset" => "The store was reset. It has 30 sample animals.",
        "signed-out" => "You have signed out.",
        _ => return None,
    })
}
