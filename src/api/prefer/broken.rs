//! Successes whose body breaks its schema.

use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use bytes::Bytes;
use http_body_util::Full;

use super::preference::Broken;
use crate::api::response::{Response, content};

const PAGE: &str = "<!doctype html><title>Sign in</title><h1>Sign in to this network</h1>\n";

/// Breaks the body of a success. Returns false, and changes nothing, if it has nothing to break: an error, or an empty list.
pub fn apply(broken: Broken, response: &mut Response) -> bool {
    if !response.status().is_success() {
        return false;
    }
    let whole = content(response.body());
    // Quotes within values are escaped, so these texts are those of fields.
    let text = String::from_utf8_lossy(&whole);
    let changed = match broken {
        Broken::Cut => whole.slice(..whole.len() / 2),
        Broken::Html => Bytes::from_static(PAGE.as_bytes()),
        Broken::UnknownField => text.replace(r#"{"id":"#, r#"{"unknownField":true,"id":"#).into(),
        Broken::UnknownValue => text.replace(r#""status":""#, r#""status":"un"#).into(),
    };
    if changed == whole {
        return false;
    }
    if broken == Broken::Html {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html"));
    }
    *response.body_mut() = Full::new(changed);
    true
}
