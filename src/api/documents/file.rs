//! Files that the service sends from memory, such as the OpenAPI document. They are compressed if the client accepts gzip.
//! A client that has the current version gets 304.

use std::sync::OnceLock;

use axum::http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode};
use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::gzip::{self, accepts_gzip};

/// A file, plain and compressed. It is made from one form; the other one is made when a client first needs it.
#[derive(Debug)]
pub struct File {
    content_type: &'static str,
    plain: OnceLock<Bytes>,
    gzip: OnceLock<Bytes>,
    /// Part of the entity tags: the beginning of the SHA-256 of the form that the file is made from; for a variant, of the
    /// original's digest and the version.
    digest: String,
    is_compressible: bool,
}

impl File {
    pub fn new(content_type: &'static str, plain: impl Into<Bytes>) -> Self {
        let plain = plain.into();
        Self { content_type, digest: digest(&plain), plain: plain.into(), gzip: OnceLock::new(), is_compressible: true }
    }

    /// A file from its compressed form.
    pub fn compressed(content_type: &'static str, gzip: &'static [u8]) -> Self {
        let gzip = Bytes::from_static(gzip);
        Self { content_type, digest: digest(&gzip), plain: OnceLock::new(), gzip: gzip.into(), is_compressible: true }
    }

    /// Returns a file of the same type with another text. `version` distinguishes the text from those of other variants. It is
    /// not compressed, because it is made for one request.
    pub fn variant(&self, version: &str, plain: String) -> Self {
        let (plain, gzip) = (Bytes::from(plain).into(), OnceLock::new());
        let digest = digest([&self.digest, version].concat().as_bytes());
        Self { content_type: self.content_type, plain, gzip, digest, is_compressible: false }
    }

    pub fn plain(&self) -> &Bytes {
        self.plain.get_or_init(|| {
            let gzip = self.gzip.get().expect("a file is made from one of its forms");
            gzip::decompress(gzip).expect("bundled files are gzip").into()
        })
    }

    fn gzip(&self) -> &Bytes {
        self.gzip.get_or_init(|| gzip::compress(self.plain()).into())
    }

    /// Returns the response to a request for the file.
    pub fn respond(&self, request: &HeaderMap) -> Response<Bytes> {
        // Each form has its own tag, because strong tags promise equal bytes (RFC 9110, section 8.8.3.3).
        let (content, encoding, suffix) = match self.is_compressible && accepts_gzip(request) {
            true => (self.gzip(), Some("gzip"), "-gzip"),
            false => (self.plain(), None, ""),
        };
        let etag = HeaderValue::try_from(format!("\"{}{suffix}\"", self.digest)).expect("a tag is visible ASCII");
        let is_known = request.get_all(IF_NONE_MATCH).iter().any(|tags| names(tags, &etag));
        let mut response = Response::new(if is_known { Bytes::new() } else { content.clone() });
        let headers = response.headers_mut();
        // Also without the content: for HEAD and 304, it is the length that a GET would return (RFC 9110, section 8.6).
        headers.insert(CONTENT_LENGTH, content.len().into());
        // Browsers revalidate on each use, so that an upgrade shows at once.
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(ETAG, etag);
        headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if is_known {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            return response;
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        if let Some(encoding) = encoding {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static(encoding));
        }
        response
    }
}

fn digest(content: &[u8]) -> String {
    let digest: [u8; 32] = Sha256::digest(content).into();
    digest[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns whether `If-None-Match` contains the tag. Ignores `W/`, because a proxy may have made the tag weak (RFC 9110,
/// section 13.1.2).
fn names(tags: &HeaderValue, etag: &HeaderValue) -> bool {
    tags.as_bytes()
        .split(|byte| *byte == b',')
        .map(<[u8]>::trim_ascii)
        .any(|tag| tag == b"*" || tag.strip_prefix(b"W/").unwrap_or(tag) == etag)
}
