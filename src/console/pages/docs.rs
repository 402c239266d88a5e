//! The documentation pages: the API reference (bundled Scalar on our own document) and the deprecations.

use std::convert::Infallible;
use std::iter;
use std::sync::{Arc, LazyLock};

use askama::Template;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Redirect, Response};
use bytes::Bytes;
use futures_util::stream;
use http_body_util::StreamBody;
use hyper::body::Frame;

use crate::api::{Addresses, BaseUrl, File};
use crate::console::session::CurrentUser;
use crate::console::shown::SampleRequest;
use crate::console::{Console, Site, layout};

/// Size of the pieces of a file that is sent, in bytes.
const PIECE: usize = 16 * 1024;

#[derive(Template)]
#[template(path = "reference.html")]
struct Reference<'a> {
    site: Site<'a>,
}

#[derive(Template)]
#[template(path = "deprecations.html")]
struct Deprecations<'a> {
    site: Site<'a>,
    /// The request to replace, its replacement, and the next page of that.
    before: SampleRequest,
    after: SampleRequest,
    next: SampleRequest,
}

/// Redirects to the API's own address if the page was opened by another name: a browser at `localhost` continues at
/// `127.0.0.1` or `[::1]`, because a session belongs to one host. Not with TLS, whose certificate may name only `localhost`.
pub fn at_own_address(addresses: &Addresses, uri: &Uri, request: &HeaderMap) -> Option<Response> {
    let address = &addresses.base_url;
    if address.is_at_any_host() {
        return None;
    }
    let port = request.get(HOST)?.to_str().ok()?.strip_prefix("localhost")?;
    let is_ours = ["127.0.0.1", "[::1]"].iter().any(|host| address.origin() == format!("http://{host}{port}"));
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    is_ours.then(|| Redirect::temporary(&format!("{}{path}", address.root())).into_response())
}

pub async fn reference(State(console): State<Arc<Console>>, request: Request) -> Response {
    if let Some(elsewhere) = at_own_address(&console.api.addresses, request.uri(), request.headers()) {
        return elsewhere;
    }
    // Not signed in, because the page has less strict rules for styles than the pages of a user.
    let user = CurrentUser::new(&console, &request);
    let mut page = page(&Reference { site: Site::new(&user, "API reference", "docs") });
    page.headers_mut().insert(CONTENT_SECURITY_POLICY, content_security_policy(&user.addresses));
    page
}

pub async fn deprecations(State(console): State<Arc<Console>>, request: Request) -> Response {
    let user = CurrentUser::new(&console, &request).or_signed_out().await;
    let site = Site::new(&user, "Deprecations", "docs/deprecations");
    let get = |path| SampleRequest::get(format!("{}{path}", user.addresses.base_url.as_str()));
    page(&Deprecations {
        site,
        before: get("/pets/7"),
        after: get("/pets?status=available&limit=100"),
        next: get("/pets?status=available&limit=100&after=107"),
    })
}

/// Renders a documentation page. Shared caches must not store it, because it depends on the user or the host.
fn page(template: &impl Template) -> Response {
    let mut page = layout::page(StatusCode::OK, template);
    page.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    page
}

/// Allows only our own files, and calls only to the API's servers, so that a key cannot be sent elsewhere. Scalar has inline
/// styles.
fn content_security_policy(addresses: &Addresses) -> HeaderValue {
    let servers = [Some(&addresses.base_url), Some(&addresses.messages_base_url), addresses.staging_base_url.as_ref()];
    let servers: Vec<_> = servers.into_iter().flatten().map(source).collect();
    let policy = format!(
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
         connect-src 'self' {}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        servers.join(" "),
    );
    HeaderValue::try_from(policy).expect("an address has visible ASCII characters only")
}

/// Returns an origin for the policy. A policy cannot name an IPv6 address (CSP level 3, section 2.3.1), so only its
/// port is checked.
fn source(address: &BaseUrl) -> String {
    let origin = address.origin();
    let ipv6 = origin.split_once("://[").and_then(|(scheme, rest)| Some((scheme, rest.split_once(']')?.1)));
    ipv6.map(|(scheme, port)| format!("{scheme}://*{port}")).unwrap_or(origin)
}

pub async fn asset(console: State<Arc<Console>>, request: Request) -> Response {
    let name = request.uri().path().strip_prefix("/docs/").unwrap_or_default();
    match ASSETS.iter().find(|(asset, _)| *asset == name) {
        Some((_, file)) => in_pieces(file.respond(request.headers())),
        None => crate::console::not_found(console, request).await,
    }
}

/// Sends a file in pieces. Each piece is copied into the connection's buffer, which never shrinks.
fn in_pieces(file: axum::http::Response<Bytes>) -> Response {
    file.map(|mut rest| {
        let piece = move || (!rest.is_empty()).then(|| rest.split_to(rest.len().min(PIECE)));
        let pieces = iter::from_fn(piece).map(|piece| Ok::<_, Infallible>(Frame::data(piece)));
        Body::new(StreamBody::new(stream::iter(pieces)))
    })
}

const CSS: &str = "text/css; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

/// The files that pages load, by name.
static ASSETS: LazyLock<[(&str, File); 7]> = LazyLock::new(|| {
    let plain = |content_type, content| File::new(content_type, Bytes::from_static(content));
    [
        ("petstore.css", plain(CSS, include_bytes!("../../../assets/petstore.css"))),
        ("petstore.svg", plain("image/svg+xml", include_bytes!("../../../assets/petstore.svg"))),
        ("petstore.js", plain(JAVASCRIPT, include_bytes!("../../../assets/petstore.js"))),
        ("reference.css", plain(CSS, include_bytes!("../../../assets/reference.css"))),
        ("reference.js", plain(JAVASCRIPT, include_bytes!("../../../assets/reference.js"))),
        ("scalar.js", File::compressed(JAVASCRIPT, include_bytes!("../../../assets/scalar/scalar.js.gz"))),
        ("scalar-licences.txt", File::compressed(TEXT, include_bytes!("../../../assets/scalar/licences.txt.gz"))),
    ]
});
