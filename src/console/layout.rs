//! What every page has: its header, its headers.

use askama::Template;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, LOCATION, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{Html, IntoResponse, Response};

use super::Console;
use super::current_user::CurrentUser;
use crate::domain::Deployment;

/// Nothing but our own files, no script or style within a page, forms to us alone, no frame around us.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; form-action 'self'; \
                      base-uri 'none'; frame-ancestors 'none'";

/// The section of a page that none of the header's links leads to.
pub const NO_SECTION: &str = "-";

/// What the layout shows.
pub struct Site<'a> {
    pub root: &'a str,
    pub title: &'a str,
    pub notice: Option<&'a str>,
    /// Of who is signed in.
    pub email: Option<&'a str>,
    pub deployment: Deployment,
    pub may_sign_up: bool,
    pub version: &'static str,
    section: &'static str,
}

impl<'a> Site<'a> {
    /// `section` is the path of the header's link that the page belongs to, or `NO_SECTION`.
    pub fn new(console: &Console, user: &'a CurrentUser, title: &'a str, section: &'static str) -> Self {
        Self {
            root: &user.root,
            title,
            notice: user.notice,
            email: user.session.as_ref().map(|session| session.email.as_str()),
            deployment: console.api.store.deployment(),
            may_sign_up: console.may_sign_up(),
            version: env!("CARGO_PKG_VERSION"),
            section,
        }
    }

    /// The header's links: path and words.
    pub fn links(&self) -> &'static [(&'static str, &'static str)] {
        match self.email {
            Some(_) => &[
                ("", "Overview"),
                ("animals", "Animals"),
                ("orders", "Orders"),
                ("messages", "Messages"),
                ("keys", "Keys"),
                ("docs", "Docs"),
            ],
            None => &[("docs", "Docs")],
        }
    }

    pub fn is_here(&self, path: &str) -> bool {
        self.section == path
    }
}

/// An answer that shows a page. It is for one person, so nobody keeps it.
pub fn page(status: StatusCode, template: &impl Template) -> Response {
    let html = template.render().expect("writing into a string does not fail");
    let headers = [
        (CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
        // Not `no-referrer`, under which a browser would not say where a form comes from.
        (REFERRER_POLICY, HeaderValue::from_static("same-origin")),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
    ];
    (status, headers, Html(html)).into_response()
}

/// On to another page, with GET.
pub fn redirect(to: &str) -> Response {
    let to = HeaderValue::try_from(to).expect("our paths have visible ASCII characters only");
    (StatusCode::SEE_OTHER, [(LOCATION, to), (CACHE_CONTROL, HeaderValue::from_static("no-store"))]).into_response()
}
