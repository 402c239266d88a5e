//! Strict parsing of queries and bodies.

use std::borrow::Cow;
use std::iter;

use axum::BoxError;
use axum::body::HttpBody;
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, TRANSFER_ENCODING};
use axum::http::{HeaderMap, HeaderValue};
use bounded_http::BodyTimeout;
use bytes::Bytes;
use http_body_util::BodyExt;

use crate::api::error::{ApiError, Code};

/// Maximum size of a request body, in bytes.
const MAX_BODY: usize = 64 * 1024;

pub trait RequestBody: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + Unpin {}

impl<B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + Unpin> RequestBody for B {}

/// Returns the values of the parameters in `query` in the order of `names`. Rejects unknown and repeated parameters,
/// because ignoring a filter would return unwanted results.
pub fn parameters<'q, const N: usize>(
    query: Option<&'q str>,
    names: [&str; N],
) -> Result<[Option<Cow<'q, str>>; N], ApiError> {
    let mut values = [const { None }; N];
    for (name, value) in pairs(query.unwrap_or_default()) {
        let Some(position) = names.iter().position(|known| *known == name) else {
            let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            let message = format!("This operation has no query parameter `{}`; it has {known}.", abridge(&name));
            return Err(ApiError::new(Code::UnknownParameter, message));
        };
        if values[position].replace(value).is_some() {
            let message = format!("The query parameter `{name}` is given more than once.");
            return Err(ApiError::new(Code::UnknownParameter, message));
        }
    }
    Ok(values)
}

/// Splits a query into names and values. Most are not encoded, and decoding those anyway would take 4 % of a list.
fn pairs(query: &str) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    let mut rest = query;
    let pairs = iter::from_fn(move || {
        let pair;
        (pair, rest) = (!rest.is_empty()).then(|| split(rest, b'&'))?;
        Some(pair)
    });
    pairs.filter(|pair| !pair.is_empty()).map(|pair| {
        if pair.bytes().any(|byte| matches!(byte, b'%' | b'+')) {
            return form_urlencoded::parse(pair.as_bytes()).next().unwrap_or_default();
        }
        let (name, value) = split(pair, b'=');
        (name.into(), value.into())
    })
}

/// Splits a text at the first `mark`. For short texts, `str::split_once` takes several times as long.
fn split(text: &str, mark: u8) -> (&str, &str) {
    let end = text.bytes().position(|byte| byte == mark);
    end.map_or((text, ""), |end| (&text[..end], &text[end + 1..]))
}

/// Parses an integer in a query or path: ASCII digits with an optional minus sign.
pub fn integer(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok())?
}

/// Rejects bodies by their headers, before they are read. Called for every operation, because any request may have a
/// body. Returns whether it is in chunks: [`read`] checks those, because there may be none. Proxies that receive HTTP/2
/// announce chunks for requests without content.
pub fn check_declared_body(headers: &HeaderMap) -> Result<bool, ApiError> {
    let declared = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    match declared {
        Some(length) if length > MAX_BODY as u64 => Err(too_large()),
        Some(0) => Ok(false),
        None if !headers.contains_key(TRANSFER_ENCODING) => Ok(false),
        // A client that waits for permission to send a body has one (RFC 9110, section 10.1.1).
        None if !headers.contains_key(EXPECT) => Ok(true),
        _ => check_media_type(headers).map(|()| false),
    }
}

/// Rejects content codings, and media types other than `application/json`. The coding `identity` means none (RFC 9110, section
/// 8.4.1). Parameters of the type are allowed, and a charset must be UTF-8 (section 8.3.1).
fn check_media_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let is_identity = |coding: &HeaderValue| coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity");
    if !headers.get_all(CONTENT_ENCODING).iter().all(is_identity) {
        let message = "`Content-Encoding` must be `identity` or absent: send the body uncompressed.";
        // Only here: a 415 names the accepted codings if the coding is the reason (RFC 9110, section 12.5.3).
        let error = ApiError::new(Code::UnsupportedMediaType, message);
        return Err(error.with_header("accept-encoding", "identity"));
    }
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let is_json = match (types.next(), types.next()) {
        (Some(only), None) => only == "application/json" || only.to_str().is_ok_and(is_json),
        _ => false,
    };
    let message = "`Content-Type` must be `application/json`, perhaps with `charset=utf-8`.";
    is_json.then_some(()).ok_or_else(|| ApiError::new(Code::UnsupportedMediaType, message))
}

fn is_json(content_type: &str) -> bool {
    let mut parts = content_type.split(';').map(str::trim);
    parts.next().is_some_and(|essence| essence.eq_ignore_ascii_case("application/json"))
        && parts.all(|parameter| match parameter.split_once('=') {
            Some((name, value)) if name.trim_end().eq_ignore_ascii_case("charset") => {
                value.trim_start().trim_matches('"').eq_ignore_ascii_case("utf-8")
            }
            _ => true,
        })
}

/// Reads a body, and checks its media type if it `is_chunked`.
pub async fn read(headers: &HeaderMap, body: &mut impl RequestBody, is_chunked: bool) -> Result<Vec<u8>, ApiError> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| match error.into().downcast::<BodyTimeout>() {
            Ok(late) => ApiError::new(Code::RequestTimeout, late.to_string()),
            // The connection broke, or the chunks are malformed or too long with their coding.
            Err(_) => ApiError::new(Code::InvalidJson, "The body could not be read completely."),
        })?;
        if let Some(data) = frame.data_ref() {
            if is_chunked && bytes.is_empty() {
                check_media_type(headers)?;
            }
            if bytes.len() + data.len() > MAX_BODY {
                return Err(too_large());
            }
            bytes.extend_from_slice(data);
        }
    }
    Ok(bytes)
}

fn too_large() -> ApiError {
    let kib = MAX_BODY / 1024;
    ApiError::new(Code::PayloadTooLarge, format!("The body is larger than {kib} KiB."))
}

/// Escapes a client's text for an error message and truncates it to 40 characters.
pub fn abridge(text: &str) -> String {
    let mut shown: String = text.chars().take(40).flat_map(char::escape_debug).collect();
    if text.chars().nth(40).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_json_in_utf_8_is_accepted() {
        for accepted in
            ["application/json", "Application/JSON; charset=UTF-8", "application/json;charset=\"utf-8\"; a=b"]
        {
            assert!(is_json(accepted), "{accepted}");
        }
        for refused in
            ["", "text/json", "application/json2", "application/json; charset=latin1", "application/problem+json"]
        {
            assert!(!is_json(refused), "{refused}");
        }
    }
}
