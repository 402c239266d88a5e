//! Rejects ambiguous requests that RFC 9112 forbids and hyper accepts. A proxy could read them differently (request
//! smuggling).
//!
//! If a request has both `Transfer-Encoding` and `Content-Length`, hyper removes the latter, reads chunks and closes the
//! connection after the response. Section 6.1 allows this, and it is as safe as a rejection.

use http::header::{HOST, TRANSFER_ENCODING};
use http::request::Parts;
use http::uri::Scheme;
use http::{HeaderValue, Method, Version};
use hyper::body::Body;

use super::request_line::HasFragment;

/// Why a request is ambiguous. The bytes that follow it may be another request to a proxy, and part of this one to hyper, so
/// its response must close the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Ambiguous {
    /// `Host` is missing in HTTP/1.1, given twice, or not a host.
    #[error("`Host` must be given once, and name a host and perhaps a port.")]
    Host,
    /// The target has a fragment.
    #[error("The target must not contain a fragment (`#…`).")]
    Fragment,
    /// The body has a transfer coding besides `chunked`.
    #[error("`Transfer-Encoding` must be `chunked`, once and alone.")]
    TransferEncoding,
    /// The target is a URL of another scheme, has no usable host, or is only a host and a port.
    #[error("A target must be a path, or begin with `http://` or `https://`, a host and perhaps a port.")]
    Target,
}

/// The characters in `uri-host [ ":" port ]` (RFC 3986, section 3.2.2). To match each would take 1 % of a request.
const IN_HOST: [bool; 256] = {
    let (mut table, mut byte) = ([false; 256], 0);
    while byte < table.len() {
        table[byte] = (byte as u8).is_ascii_alphanumeric()
            || matches!(byte as u8, b'!' | b'$'..=b'.' | b':' | b';' | b'=' | b'[' | b']' | b'_' | b'~');
        byte += 1;
    }
    table
};

/// Rejects requests with an ambiguous host, target or body length. Replaces `Host` by the host of a target in absolute form
/// (section 3.2.2).
///
/// # Errors
///
/// Fails if the request is ambiguous. Its response must then close the connection.
pub fn check(request: &mut Parts, body: &impl Body) -> Result<(), Ambiguous> {
    let headers = &request.headers;
    let mut hosts = headers.get_all(HOST).iter();
    // Section 3.2: `Host` is required in HTTP/1.1, and unknown in HTTP/1.0.
    let clear = match (hosts.next(), hosts.next()) {
        (Some(host), None) => names_a_host(host),
        (None, _) => request.version == Version::HTTP_10,
        (Some(_), Some(_)) => false,
    };
    if !clear {
        return Err(Ambiguous::Host);
    }
    if request.extensions.get::<HasFragment>().is_some() {
        return Err(Ambiguous::Fragment);
    }
    if !body.is_end_stream() && headers.contains_key(TRANSFER_ENCODING) {
        let mut encodings = headers.get_all(TRANSFER_ENCODING).iter();
        let chunked = encodings.next().is_some_and(|encoding| encoding.as_bytes().eq_ignore_ascii_case(b"chunked"));
        if !chunked || encodings.next().is_some() {
            return Err(Ambiguous::TransferEncoding);
        }
    }
    // Section 3.2.2 requires servers to accept targets in absolute form, which has a scheme.
    let Some(scheme) = request.uri.scheme() else {
        // Section 3.2.3: a host and a port are only for CONNECT.
        let is_origin = request.uri.authority().is_none() || request.method == Method::CONNECT;
        return if is_origin { Ok(()) } else { Err(Ambiguous::Target) };
    };
    let authority = request.uri.authority().filter(|_| *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS);
    let host = authority.and_then(|it| HeaderValue::from_str(it.as_str()).ok()).filter(names_a_host);
    let host = host.ok_or(Ambiguous::Target)?;
    request.headers.insert(HOST, host);
    Ok(())
}

/// Returns whether all characters are allowed in a host with an optional port. The host may be empty.
#[inline]
fn names_a_host(host: &HeaderValue) -> bool {
    host.as_bytes().iter().all(|byte| IN_HOST[usize::from(*byte)])
}

#[cfg(test)]
mod tests {
    use http::Request;
    use http_body_util::Full;

    use super::*;

    fn checked(version: Version, headers: &[(&str, &str)], body: &'static str) -> Result<(), Ambiguous> {
        let request = Request::builder().version(version);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let (mut head, ()) = request.body(()).unwrap().into_parts();
        check(&mut head, &Full::new(body.as_bytes()))
    }

    #[test]
    fn host_is_required_once() {
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
            let (mut head, ()) = Request::builder().uri(uri).header("host", "a").body(()).unwrap().into_parts();
            check(&mut head, &Full::new(&b""[..])).ok().map(|()| head.headers[HOST].to_str().unwrap().to_owned())
        };
        for uri in ["/livez", "*", "http://a/livez", "HTTPS://a/livez"] {
            assert_eq!(target(uri).as_deref(), Some("a"), "{uri}");
        }
        assert_eq!(target("http://shop.example:8080/livez").as_deref(), Some("shop.example:8080"));
        for uri in ["ftp://a/livez", "ws://a/livez", "httpx://a/livez", "http://user@a/livez", "a:1"] {
            assert_eq!(target(uri), None, "{uri}");
        }
    }

    #[test]
    fn only_chunked_transfer_encoding_is_accepted() {
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
