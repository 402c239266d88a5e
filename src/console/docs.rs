//! The documentation pages: the API reference (bundled Swagger UI on our own document) and the deprecations.

use std::convert::Infallible;
use std::sync::{Arc, LazyLock};

use askama::Template;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HOST, IF_NONE_MATCH,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Redirect, Response};
use bytes::Bytes;
use futures_util::stream;
use http_body_util::StreamBody;
use hyper::body::Frame;
use sha2::{Digest, Sha256};

use super::Console;
use super::current_user::CurrentUser;
use super::layout::{self, Site};
use crate::config::{Addresses, BaseUrl};

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
    base_url: &'a str,
}

/// Redirects to the API's own address if the page was opened by another name: a browser at `localhost` continues at
/// `127.0.0.1`. The reference calls the API from its own origin, and a session belongs to one host.
pub fn at_own_address(addresses: &Addresses, uri: &Uri, request: &HeaderMap) -> Option<Response> {
    let address = &addresses.base_url;
    if address.is_at_any_host() {
        return None;
    }
    let port = request.get(HOST)?.to_str().ok()?.strip_prefix("localhost")?;
    let is_ours = address.origin() == format!("http://127.0.0.1{port}");
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    is_ours.then(|| Redirect::temporary(&format!("{}{path}", address.root())).into_response())
}

pub async fn reference(State(console): State<Arc<Console>>, request: Request) -> Response {
    if let Some(elsewhere) = at_own_address(&console.api.addresses, request.uri(), request.headers()) {
        return elsewhere;
    }
    let user = CurrentUser::new(&console, &request).or_signed_out().await;
    page(&Reference { site: Site::new(&user, "API reference", "docs") }, &user.addresses)
}

pub async fn deprecations(State(console): State<Arc<Console>>, request: Request) -> Response {
    let user = CurrentUser::new(&console, &request).or_signed_out().await;
    let site = Site::new(&user, "Deprecations", "docs/deprecations");
    page(&Deprecations { site, base_url: user.addresses.base_url.as_str() }, &user.addresses)
}

/// Renders a documentation page. Its header shows the current user, so shared caches must not store it.
fn page(template: &impl Template, addresses: &Addresses) -> Response {
    let mut page = layout::page(StatusCode::OK, template);
    page.headers_mut().insert(CONTENT_SECURITY_POLICY, content_security_policy(addresses));
    page.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    page
}

/// Allows only our own files, and calls only to the API's servers, so that a key cannot be sent elsewhere.
fn content_security_policy(addresses: &Addresses) -> HeaderValue {
    let servers = [Some(&addresses.base_url), Some(&addresses.messages_base_url), addresses.staging_base_url.as_ref()];
    let servers: Vec<_> = servers.into_iter().flatten().map(source).collect();
    let policy = format!(
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self' {}; \
         base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
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
    match ASSETS.iter().find(|asset| asset.name == name) {
        Some(asset) => send(asset, request.headers()),
        None => super::not_found(console, request).await,
    }
}

fn send(asset: &Asset, request: &HeaderMap) -> Response {
    // Browsers revalidate on each use, so that an upgrade shows at once.
    let mut headers = HeaderMap::from_iter([
        // Required without the content too, for HEAD and 304 (RFC 9110, section 8.6).
        (CONTENT_LENGTH, asset.content.len().into()),
        (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (ETAG, asset.etag.clone()),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ]);
    if request.get_all(IF_NONE_MATCH).iter().any(|tags| names(tags, &asset.etag)) {
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(asset.content_type));
    if asset.is_gzip {
        // `Accept-Encoding` is ignored: every browser that runs Swagger UI supports gzip.
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    // In pieces, because each piece is copied into the connection's buffer, which keeps its size.
    let pieces = asset.content.chunks(PIECE).map(|piece| Ok::<_, Infallible>(Frame::data(Bytes::from_static(piece))));
    (headers, Body::new(StreamBody::new(stream::iter(pieces)))).into_response()
}

/// Returns whether `If-None-Match` contains the tag. A proxy may have made it weak (RFC 9110, section 13.1.2).
fn names(tags: &HeaderValue, etag: &HeaderValue) -> bool {
    tags.as_bytes()
        .split(|byte| *byte == b',')
        .map(<[u8]>::trim_ascii)
        .any(|tag| tag.strip_prefix(b"W/").unwrap_or(tag) == etag)
}

/// A file that pages load.
struct Asset {
    name: &'static str,
    content_type: &'static str,
    content: &'static [u8],
    is_gzip: bool,
    etag: HeaderValue,
}

impl Asset {
    fn new(name: &'static str, content_type: &'static str, content: &'static [u8]) -> Self {
        let digest: [u8; 32] = Sha256::digest(content).into();
        let digest: String = digest[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        let etag = HeaderValue::try_from(format!("\"{digest}\"")).expect("hexadecimal digits are visible ASCII");
        Self { name, content_type, content, is_gzip: false, etag }
    }

    fn gzip(name: &'static str, content_type: &'static str, content: &'static [u8]) -> Self {
        Self { is_gzip: true, ..Self::new(name, content_type, content) }
    }
}

const CSS: &str = "text/css; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

static ASSETS: LazyLock<[Asset; 8]> = LazyLock::new(|| {
    [
        Asset::new("petstore.css", CSS, include_bytes!("../../assets/petstore.css")),
        Asset::new("petstore.svg", "image/svg+xml", include_bytes!("../../assets/petstore.svg")),
        Asset::new("petstore.js", JAVASCRIPT, include_bytes!("../../assets/petstore.js")),
        Asset::gzip("swagger-ui.css", CSS, include_bytes!("../../assets/swagger-ui/swagger-ui.css.gz")),
        Asset::gzip(
            "swagger-ui-bundle.js",
            JAVASCRIPT,
            include_bytes!("../../assets/swagger-ui/swagger-ui-bundle.js.gz"),
        ),
        // The licences of the bundle. Its first line refers to the last of these.
        Asset::new("LICENSE", TEXT, include_bytes!("../../assets/swagger-ui/LICENSE")),
        Asset::new("NOTICE", TEXT, include_bytes!("../../assets/swagger-ui/NOTICE")),
        Asset::new(
            "swagger-ui-bundle.js.LICENSE.txt",
            TEXT,
            include_bytes!("../../assets/swagger-ui/swagger-ui-bundle.js.LICENSE.txt"),
        ),
    ]
});
