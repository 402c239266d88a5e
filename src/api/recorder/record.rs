//! A request as its account sees it in the console.

use std::sync::OnceLock;
use std::time::Duration;

use axum::http::StatusCode;
use axum::http::header::HeaderMap;
use serde_json::Value;

use super::shown::is_header_shown;
use crate::api::operations::{Listener, Operation};
use crate::domain::Timestamp;
use crate::domain::api_key::KeyOwner;
use crate::redaction::{HIDDEN, without_keys};

/// Maximum size in bytes of each head and body that is kept.
pub const SHOWN: usize = 16 * 1024;

/// Maximum size in bytes of the request's line and of an error's message in a list.
pub const LISTED: usize = 512;

/// The loss of a response that its client did not wait for.
pub const LOST_BY_CLIENT: &str = "the client closed the connection";

/// A request with a key of an account, active or not. All its texts are without secrets, and their sizes are bounded.
#[derive(Debug)]
pub struct RecordedRequest {
    /// Assigned when it is stored.
    pub id: u64,
    pub owner: KeyOwner,
    pub at: Timestamp,
    pub took: Duration,
    pub listener: Listener,
    /// `None` if the path has no operation with this method.
    pub operation: Option<Operation>,
    /// Method, path and query.
    pub line: RedactedText,
    /// The status of the response, also if the client did not get it. `None` if there was none.
    pub status: Option<u16>,
    /// How the connection ended, if the client did not get the whole response: the first reason. Known after the request is
    /// stored if a slow body is cut.
    pub loss: OnceLock<&'static str>,
    /// `None` if the response is not an error of the API.
    pub error: Option<RecordedError>,
    pub request_id: RedactedText,
    /// The preferences that were simulated.
    pub simulated: Option<RedactedText>,
    pub is_replayed: bool,
    /// The messages. `None` in production.
    pub exchange: Option<Exchange>,
}

#[derive(Debug, Default)]
pub struct RecordedError {
    pub code: RedactedText,
    pub message: RedactedText,
}

/// Request and response.
#[derive(Debug, Default)]
pub struct Exchange {
    pub request_head: RedactedText,
    pub response_head: RedactedText,
    /// `None` if the key was inactive.
    pub request_body: Option<RedactedText>,
    /// `None` if the key was inactive.
    pub response_body: Option<RedactedText>,
}

/// A text without secrets, of limited size.
#[derive(Debug, Default)]
pub struct RedactedText {
    pub text: Box<str>,
    /// True if the end of a longer text is missing.
    pub is_cut: bool,
}

impl RecordedRequest {
    pub fn is_failed(&self) -> bool {
        self.loss.get().is_some() || self.status.is_some_and(|status| status >= 400)
    }

    /// All texts of variable size.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        let error = self.error.iter().flat_map(|error| [&error.code, &error.message]);
        let heads = self.exchange.iter().flat_map(|exchange| [&exchange.request_head, &exchange.response_head]);
        let bodies =
            self.exchange.iter().flat_map(|exchange| exchange.request_body.iter().chain(&exchange.response_body));
        let texts = [&self.line, &self.request_id].into_iter().chain(&self.simulated).chain(error);
        texts.chain(heads).chain(bodies).map(|text| &*text.text)
    }
}

impl RecordedError {
    /// Reads an error's body. `None` if it is another's, such as a page of a simulated proxy.
    pub fn of(status: StatusCode, body: &[u8]) -> Option<Self> {
        if !status.is_client_error() && !status.is_server_error() {
            return None;
        }
        let body: Value = serde_json::from_slice(body).ok()?;
        let text = |field: &str| Some(RedactedText::of(body[field].as_str()?.as_bytes(), LISTED));
        Some(Self { code: text("code")?, message: text("message")? })
    }
}

impl RedactedText {
    /// The text, with an ellipsis if its end is missing.
    pub fn shown(&self) -> String {
        format!("{}{}", self.text, if self.is_cut { "…" } else { "" })
    }

    /// Keeps the beginning of a text, at most `limit` bytes. Keys are replaced after it is cut, and may be cut too. Bytes
    /// that are not UTF-8, and control characters that a terminal could obey, become `�`.
    pub fn of(text: &[u8], limit: usize) -> Self {
        let kept = without_keys(&text[..text.len().min(limit)]);
        let is_obeyed = |character: char| character.is_control() && !matches!(character, '\n' | '\t');
        let mut kept = String::from_utf8_lossy(&kept).replace(is_obeyed, "\u{fffd}");
        let is_cut = text.len() > limit || kept.len() > limit;
        kept.truncate(kept.floor_char_boundary(limit));
        Self { text: kept.into(), is_cut }
    }

    /// Keeps the beginning of a head. `line` is its first line.
    pub fn of_head(line: &str, headers: &HeaderMap) -> Self {
        let mut head = line.as_bytes().to_vec();
        for (name, value) in headers {
            let value = if is_header_shown(name) { value.as_bytes() } else { HIDDEN.as_bytes() };
            head.extend_from_slice(&[b"\n", name.as_str().as_bytes(), b": ", value].concat());
        }
        Self::of(&head, SHOWN)
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    const KEY: &str = "pet_test_0123456789abcdefghijABCDEFGHIJ01234567";

    #[test]
    fn text_is_bounded_and_hides_a_key_across_the_bound() {
        for inside in 0..=KEY.len() {
            let text = "x".repeat(SHOWN - inside) + KEY + "end";
            let kept = RedactedText::of(text.as_bytes(), SHOWN);
            assert!(kept.is_cut && kept.text.len() <= SHOWN);
            assert!(!kept.text.contains("01"), "{inside}");
        }
        let growing = RedactedText::of("pet_test_a ".repeat(SHOWN).as_bytes(), SHOWN);
        assert!(growing.is_cut && growing.text.len() <= SHOWN && !growing.text.contains("_a"));
        let other = RedactedText::of("ü".repeat(SHOWN).as_bytes(), SHOWN);
        assert!(other.is_cut && other.text.len() <= SHOWN && other.text.ends_with('ü'));
        assert_eq!(
            &*RedactedText::of(b"\x1b[201~\xff\0\r\n\t", SHOWN).text,
            "\u{fffd}[201~\u{fffd}\u{fffd}\u{fffd}\n\t"
        );
        assert!(!RedactedText::of("x".repeat(SHOWN).as_bytes(), SHOWN).is_cut);
    }

    #[test]
    fn head_is_bounded_and_without_secrets() {
        let mut headers = HeaderMap::new();
        for (name, value) in
            [("host", "a"), ("authorization", "Basic YWRh"), ("cookie", "a=b"), ("prefer", KEY), ("x-a", "b")]
        {
            headers.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        }
        let line = format!("GET /v1/{KEY} HTTP/1.1");
        assert_eq!(
            &*RedactedText::of_head(&line, &headers).text,
            "GET /v1/pet_test_[hidden] HTTP/1.1\nhost: a\nauthorization: [hidden]\ncookie: [hidden]\n\
             prefer: pet_test_[hidden]\nx-a: [hidden]"
        );
        for _ in 0..40 {
            headers.append("accept", "y".repeat(1_000).parse().unwrap());
        }
        for line in [line, format!("GET /{}", "z".repeat(2 * SHOWN))] {
            let head = RedactedText::of_head(&line, &headers);
            assert!(head.is_cut && head.text.len() <= SHOWN);
        }
    }
}
