//! The user of a page, signed in or not: the session behind the cookie.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::header::{COOKIE, SET_COOKIE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Uri};
use axum::response::Response;

use super::Console;
use super::form::Form;
use super::layout::redirect;
use crate::config::Addresses;
use crate::domain::{Session, SessionToken};
use crate::http::client_address::{Peer, client_address};
use crate::store;

/// The user of a page, signed in or not.
#[derive(Clone, Debug)]
pub struct CurrentUser {
    /// Relative path from the page to the root of our paths, so that links work behind a path prefix.
    pub root: String,
    /// The addresses by which this user reaches the service.
    pub addresses: Arc<Addresses>,
    /// A message from the previous page.
    pub notice: Option<&'static str>,
    pub session: Option<Session>,
    /// Whether a cookie was sent whose session has ended.
    had_session: bool,
}

impl CurrentUser {
    pub async fn of(console: &Console, uri: &Uri, headers: &HeaderMap) -> store::Result<Self> {
        let mut user = Self { addresses: console.api.addresses.reached_by(headers), ..Self::stranger(console, uri) };
        let Some(hash) = cookie(headers, name(console)).and_then(SessionToken::hash_presented) else {
            return Ok(user);
        };
        let now = console.api.clock.steady();
        user.session = console.api.store.find_session(&hash).await?.filter(|session| session.lasts(now));
        user.had_session = user.session.is_none();
        if user.session.as_ref().is_some_and(|session| session.is_stale(now))
            && let Err(error) = console.api.store.touch_session(hash, now.to_the_minute()).await
        {
            // The page can be shown. Only the session ends a little earlier.
            let error = error.to_string();
            if console.unstored_sessions.is_first(&error) {
                tracing::warn!(error, "session use not stored");
            }
        }
        Ok(user)
    }

    /// Returns the user of a public page. If the session cannot be read, the user counts as signed out.
    pub async fn or_stranger(console: &Console, uri: &Uri, headers: &HeaderMap) -> Self {
        Self::of(console, uri, headers).await.unwrap_or_else(|_| Self::stranger(console, uri))
    }

    pub fn stranger(console: &Console, uri: &Uri) -> Self {
        let depth = uri.path().matches('/').count().saturating_sub(1);
        Self {
            root: if depth == 0 { "./".to_owned() } else { "../".repeat(depth) },
            addresses: Arc::clone(&console.api.addresses),
            notice: notice(uri),
            session: None,
            had_session: false,
        }
    }

    /// Redirects to another page.
    pub fn redirect(&self, path: &str) -> Response {
        redirect(&format!("{}{path}", self.root))
    }
}

impl FromRequestParts<Console> for CurrentUser {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, console: &Console) -> Result<Self, Self::Rejection> {
        let user: Option<&Arc<Self>> = parts.extensions.get();
        Ok(user.map_or_else(|| Self::stranger(console, &parts.uri), |user| user.as_ref().clone()))
    }
}

/// The user of a page that requires a session. Other users are redirected to the sign-in page.
pub struct SignedIn {
    pub user: CurrentUser,
    pub session: Session,
}

impl FromRequestParts<Console> for SignedIn {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, console: &Console) -> Result<Self, Response> {
        let Ok(user) = CurrentUser::from_request_parts(parts, console).await;
        match user.session.clone() {
            Some(session) => Ok(Self { user, session }),
            None if user.had_session => Err(user.redirect("sign-in?notice=session-ended")),
            None => Err(user.redirect("sign-in")),
        }
    }
}

/// The network address of the client, if known.
#[derive(Clone, Copy, Debug)]
pub struct Client(pub Option<IpAddr>);

impl FromRequestParts<Console> for Client {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, console: &Console) -> Result<Self, Self::Rejection> {
        let trusted = &console.api.trusted_proxies;
        let peer: Option<&Peer> = parts.extensions.get();
        Ok(Self(peer.map(|Peer(peer)| client_address(*peer, &parts.headers, trusted))))
    }
}

/// Adds the session cookie to a response.
pub fn with_token(console: &Console, token: &SessionToken, response: Response) -> Response {
    with_cookie(console, token.expose(), "", response)
}

/// Removes the session cookie.
pub fn without_token(console: &Console, response: Response) -> Response {
    with_cookie(console, "", "; Max-Age=0", response)
}

fn with_cookie(console: &Console, value: &str, age: &str, mut response: Response) -> Response {
    // Not readable by scripts, and not sent with forms of other sites.
    let secure = if is_https(console) { "; Secure" } else { "" };
    let cookie = format!("{}={value}; Path=/; HttpOnly; SameSite=Lax{secure}{age}", name(console));
    let mut cookie = HeaderValue::try_from(cookie).expect("a token has hexadecimal digits only");
    cookie.set_sensitive(true);
    response.headers_mut().insert(SET_COOKIE, cookie);
    response
}

/// Returns the cookie's name. Browsers accept the prefix `__Host-` only from this host and over TLS (RFC 6265bis,
/// section 4.1.3).
fn name(console: &Console) -> &'static str {
    if is_https(console) { "__Host-petstore" } else { "petstore" }
}

fn is_https(console: &Console) -> bool {
    console.api.addresses.base_url.is_https()
}

fn cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let pairs = headers.get_all(COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
    pairs.flat_map(|cookies| cookies.split(';')).find_map(|pair| {
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
        "session-ended" => "Your session has ended. Sign in to continue.",
        "signed-out" => "You have signed out.",
        _ => return None,
    })
}
