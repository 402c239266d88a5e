//! The layout of all pages and their headers.

use askama::Template;
use axum::http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_SECURITY_POLICY, REFERRER_POLICY, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{Html, IntoResponse, Response};

use super::PageError;
use super::form::simulation::{CHOICES, Choices};
use super::session::CurrentUser;
use crate::domain::Role;

/// Allows only our own files, requests and forms to this origin only, no inline scripts or styles, and no framing.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The section of a page that has no link in the header.
pub const NO_SECTION: &str = "-";

/// The data of the layout.
pub struct Site<'a> {
    pub user: &'a CurrentUser,
    pub root: &'a str,
    pub title: &'a str,
    /// The address of the signed-in user.
    pub email: Option<&'a str>,
    /// The failures that a form can simulate. Empty in production and if simulation is off.
    pub simulations: Choices,
    pub section: &'static str,
}

impl<'a> Site<'a> {
    /// `section` is the path of the header's link that the page belongs to, or `NO_SECTION`.
    pub fn new(user: &'a CurrentUser, title: &'a str, section: &'static str) -> Self {
        Self {
            user,
            root: &user.root,
            title,
            email: user.session.as_ref().map(|session| session.email.as_str()),
            simulations: if user.api().simulator.is_some() { CHOICES } else { &[] },
            section,
        }
    }

    /// Returns the links of the header: path and text.
    pub fn links(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let is_staff = self.user.session.as_ref().is_some_and(|session| session.role == Role::Staff);
        let links: &[_] = match self.user.session {
            Some(_) => &[
                ("", "Overview"),
                ("animals", "Animals"),
                ("orders", "Orders"),
                ("messages", "Messages"),
                ("keys", "Keys"),
                ("requests", "Requests"),
                ("audit", "Audit"),
                ("docs", "Docs"),
            ],
            None => &[("docs", "Docs")],
        };
        links.iter().copied().filter(move |(path, _)| *path != "audit" || is_staff)
    }
}

/// Renders a page. No cache may store it, because it is for one user.
pub fn page(status: StatusCode, template: &impl Template) -> Response {
    let html = template.render().expect("writing into a string does not fail");
    let headers = [
        (CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
        // Not `no-referrer`, because browsers would then not send the origin of a form.
        (REFERRER_POLICY, HeaderValue::from_static("same-origin")),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
    ];
    (status, headers, Html(html)).into_response()
}

#[derive(Template)]
#[template(path = "console/error.html")]
struct ErrorPage<'a> {
    site: Site<'a>,
    message: &'a str,
}

/// Renders an error for its user.
pub fn error_page(user: &CurrentUser, error: PageError) -> Response {
    let site = Site::new(user, error.title, NO_SECTION);
    let mut response = page(error.status, &ErrorPage { site, message: &error.message });
    let headers = response.headers_mut();
    if let Some(wait) = error.retry_after {
        let seconds = u64::try_from(wait.as_millis().div_ceil(1_000).max(1)).unwrap_or(u64::MAX);
        headers.insert(RETRY_AFTER, seconds.into());
    }
    if matches!(error.status, StatusCode::REQUEST_TIMEOUT | StatusCode::PAYLOAD_TOO_LARGE) {
        // The rest of the request is not read, so the connection cannot be reused.
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    if let Some(cause) = error.cause {
        response.extensions_mut().insert(cause);
    }
    response
}
