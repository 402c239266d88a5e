//! What RFC 9112 has a server refuse and hyper lets through: a request that two readers could take for different ones.
//!
//! Where `Transfer-Encoding` and `Content-Length` come together, hyper drops the latter before anybody sees it, reads
//! chunks, and closes the connection after its answer: the other choice of section 6.1, and as safe.

use axum::body::HttpBody;
use axum::http::header::{HOST, TRANSFER_ENCODING};
use axum::http::request::Parts;
use axum::http::uri::Scheme;
use axum::http::{HeaderValue, Version};

use super::error::{ApiError, Code};
use crate::server::HasFragment;

/// Refuses a request that does not say, once and clearly, whom it is for and where its body ends.
pub fn check(request: &Parts, body: &impl HttpBody) -> Result<(), ApiError> {
    let headers = &request.headers;
    let mut hosts = headers.get_all(HOST).iter();
    // Section 3.2: HTTP/1.1 needs it, HTTP/1.0 does not know it.
    let clear = match (hosts.next(), hosts.next()) {
        (Some(host), None) => names_a_host(host),
        (None, _) => request.version == Version::HTTP_10,
        (Some(_), Some(_)) => false,
    };
    if !clear {
        return Err(refused("`Host` must be given once, and name a host and perhaps a port."));
    }
    if request.extensions.get::<HasFragment>().is_some() {
        return Err(refused("The target must not contain a fragment (`#…`)."));
    }
    // Section 3.2.2 has origin servers accept the absolute form, which names the scheme.
    if request.uri.scheme().is_some_and(|scheme| *scheme != Scheme::HTTP && *scheme != Scheme::HTTPS) {
        return Err(refused("A target in absolute form must begin with `http://` or `https://`."));
    }
    if !body.is_end_stream() && headers.contains_key(TRANSFER_ENCODING) {
        let mut encodings = headers.get_all(TRANSFER_ENCODING).iter();
        let chunked = encodings.next().is_some_and(|encoding| encoding.as_bytes().eq_ignore_ascii_case(b"chunked"));
        if !chunked || encodings.next().is_some() {
            return Err(refused("`Transfer-Encoding` must be `chunked`, once and alone."));
        }
    }
    Ok(())
}

fn refused(why: &'static str) -> ApiError {
    ApiError::new(Code::InvalidValue, why)
}

/// Whether all of it may stand in `uri-host [ ":" port ]` (RFC 3986, section 3.2.2). Empty is allowed.
fn names_a_host(host: &HeaderValue) -> bool {
    host.as_bytes().iter().all(|byte| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=:[]".contains(byte))
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::Request;

    use super::*;

    fn checked(version: Version, headers: &[(&str, &str)], body: &'static str) -> Result<(), ApiError> {
        let request = Request::builder().version(version);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let (head, ()) = request.body(()).unwrap().into_parts();
        check(&head, &if body.is_empty() { Body::empty() } else { Body::from(body) })
    }

    #[test]
    fn a_request_names_its_host_once() {
        let hosts = |hosts: &[&str]| {
            let headers: Vec<_> = hosts.iter().map(|host| ("host", *host)).collect();
            checked(Version::HTTP_11, &headers, "").is_ok()
        };
        for accepted in ["shop.example", "shop.example:8080", "127.0.0.1:1", "[::1]:8080", ""] {
            assert!(hosts(&[accepted]), "{accepted}");
        }
        for refused in ["a b", "a/b", "user@a", "a?b", "a#b", "a\\b", "<a>", "a\tb"] {
            assert!(!hosts(&[refused]), "{refused}");
        }
        assert!(!hosts(&[]) && !hosts(&["a", "a"]) && !hosts(&["a", "b"]));
        assert!(checked(Version::HTTP_10, &[], "").is_ok());
        assert!(checked(Version::HTTP_10, &[("host", "a"), ("host", "a")], "").is_err());
    }

    #[test]
    fn only_http_targets_are_accepted() {
        let target = |uri: &str| {
            let (head, ()) = Request::builder().uri(uri).header("host", "a").body(()).unwrap().into_parts();
            check(&head, &Body::empty()).is_ok()
        };
        assert!(target("/livez") && target("*") && target("http://a/livez") && target("HTTPS://a/livez"));
        assert!(!target("ftp://a/livez") && !target("ws://a/livez") && !target("httpx://a/livez"));
    }

    #[test]
    fn a_body_comes_in_chunks_or_is_not_encoded() {
        let encodings = |encodings: &[&str]| {
            let encodings = encodings.iter().map(|encoding| ("transfer-encoding", *encoding));
            let headers: Vec<_> = [("host", "a")].into_iter().chain(encodings).collect();
            checked(Version::HTTP_11, &headers, "{}").is_ok()
        };
        assert!(encodings(&[]) && encodings(&["chunked"]) && encodings(&["Chunked"]));
        assert!(!encodings(&["gzip, chunked"]) && !encodings(&["chunked, chunked"]) && !encodings(&["identity"]));
        assert!(!encodings(&["chunked", "chunked"]) && !encodings(&["identity", "chunked"]));
    }
}
