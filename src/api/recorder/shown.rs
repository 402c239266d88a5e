//! Lists the parts of a recorded request that the console shows, so that nothing has to be recognized as a secret.

use std::borrow::Cow;

use axum::http::{HeaderName, Uri};
use serde_json::Value;

use super::body::ReadBody;
use crate::api::input::fields::{read_object, string};
use crate::api::operations::Operation;
use crate::domain::{Message, NewOrder, NewPet, json_string};
use crate::redaction::HIDDEN;

/// The beginning of the text that replaces a body that is not a JSON object.
pub const HIDDEN_BODY: &str = "[hidden: ";

/// Headers of requests and responses whose values are shown.
const HEADERS: [&str; 41] = [
    "accept", "accept-encoding", "accept-language", "allow", "cache-control", "connection", "content-encoding",
    "content-language", "content-length", "content-security-policy", "content-type", "date", "deprecation", "etag",
    "expect", "host", "idempotency-key", "idempotent-replayed", "if-match", "if-modified-since", "if-none-match",
    "keep-alive", "last-modified", "link", "location", "origin", "prefer", "preference-applied", "ratelimit",
    "ratelimit-policy", "retry-after", "strict-transport-security", "sunset", "te", "traceparent", "transfer-encoding",
    "user-agent", "vary", "www-authenticate", "x-content-type-options", "x-request-id",
];

/// Parameters of queries whose values are shown.
const PARAMETERS: [&str; 4] = ["limit", "status", "after", "accountId"];

pub fn is_header_shown(name: &HeaderName) -> bool {
    HEADERS.contains(&name.as_str())
}

/// Returns path and query, without the parts that have another form than the API's own.
pub fn target(uri: &Uri) -> String {
    let parameter = |parameter: &str| match parameter.split_once('=') {
        Some((name, value)) if PARAMETERS.contains(&name) => format!("{name}={}", plain(value)),
        Some((name, _)) => format!("{}={HIDDEN}", plain(name)),
        None => plain(parameter).to_owned(),
    };
    let path = uri.path().split('/').map(plain).collect::<Vec<_>>().join("/");
    let query = uri.query().map(|query| query.split('&').map(parameter).collect::<Vec<_>>().join("&"));
    path + &query.map_or_else(String::new, |query| format!("?{query}"))
}

/// Hides a text with other characters than the API's own paths and parameters have, because a key may be escaped in it.
fn plain(text: &str) -> &str {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if text.bytes().all(is_plain) { text } else { HIDDEN }
}

/// Returns what is shown of a request's body. Of a JSON object, these are the fields of the operation and the names of
/// others; of another body, its length and the position of the error, which only the whole body has.
pub fn body(ReadBody { bytes, is_complete }: ReadBody<'_>, operation: Option<Operation>) -> String {
    if bytes.is_empty() {
        return String::new();
    }
    let fields: &[&str] = match operation {
        Some(Operation::CreatePet) => &NewPet::FIELDS,
        Some(Operation::PlaceOrder) => &NewOrder::FIELDS,
        Some(Operation::SendMessage) => &Message::FIELDS,
        _ => &[],
    };
    let mut shown = Vec::new();
    let read = read_object(serde_json::Deserializer::from_slice(bytes), |name, value| {
        let is_shown = string(name).is_ok_and(|name| fields.contains(&&*name));
        let value = if is_shown { unescaped(value) } else { json_string(HIDDEN).into() };
        shown.push(format!("{}:{value}", unescaped(name)));
    });
    match read {
        Ok(()) => format!("{{{}}}", shown.join(",")),
        Err(_) if !is_complete => format!("{HIDDEN_BODY}the first {} bytes, the rest was not read]", bytes.len()),
        Err(error) => {
            let (length, line, column) = (bytes.len(), error.line(), error.column());
            format!("{HIDDEN_BODY}{length} bytes, not a JSON object, error at line {line} column {column}]")
        }
    }
}

/// Returns a value without escaped letters, because a key that has some would not be found.
fn unescaped(value: &str) -> Cow<'_, str> {
    if !value.contains("\\u") {
        return value.into();
    }
    serde_json::from_str::<Value>(value).map_or_else(|_| json_string(HIDDEN), |value| value.to_string()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(bytes: &[u8], operation: Option<Operation>) -> String {
        super::body(ReadBody { bytes, is_complete: true }, operation)
    }

    #[test]
    fn only_own_forms_of_a_target_are_shown() {
        for (sent, shown) in [
            ("/v1/pets/77", "/v1/pets/77"),
            ("/v1/pet", "/v1/pet"),
            ("/v1/pets?limit=0&status=sold&after=-1", "/v1/pets?limit=0&status=sold&after=-1"),
            ("/v1/pets?limit=a%20b&", "/v1/pets?limit=[hidden]&"),
            ("/v1/pets?access_token=secret&password", "/v1/pets?access_token=[hidden]&password"),
            ("/v1/pets?password[]=secret&a%5Fb=c&a%5Fb", "/v1/pets?[hidden]=[hidden]&[hidden]=[hidden]&[hidden]"),
            ("/v1/pets/%70et_test_a/password=secret", "/v1/pets/[hidden]/[hidden]"),
        ] {
            assert_eq!(target(&sent.parse().unwrap()), shown);
        }
    }

    #[test]
    fn fields_of_the_operation_are_shown() {
        let pet = |sent: &str| body(sent.as_bytes(), Some(Operation::CreatePet));
        for (sent, shown) in [
            ("", ""),
            ("{}", "{}"),
            (
                r#"{ "name" : "O'Malley \"é\"",
                "categoryId":3e0 }"#,
                r#"{"name":"O'Malley \"é\"","categoryId":3e0}"#,
            ),
            (
                r#"{"categoryId":[1e999,{"a":null}],"status":true}"#,
                r#"{"categoryId":[1e999,{"a":null}],"status":true}"#,
            ),
            (r#"{"name":1,"name":2,"password":"x"}"#, r#"{"name":1,"name":2,"password":"[hidden]"}"#),
            (r#"{"petId":"x","a":{"name":"x"}}"#, r#"{"petId":"[hidden]","a":"[hidden]"}"#),
            (r#"{"n\u0061me":"pet\u005ftest","pet\u005f":1}"#, r#"{"name":"pet_test","pet_":"[hidden]"}"#),
            (r#"{"name":"pet\u005ftest\ud800"}"#, r#"{"name":"[hidden]"}"#),
        ] {
            assert_eq!(pet(sent), shown);
        }
        assert_eq!(body(br#"{"name":"x"}"#, None), r#"{"name":"[hidden]"}"#);
    }

    #[test]
    fn length_and_position_of_other_bodies_are_shown() {
        for (sent, shown) in [
            (&b"password=secret"[..], "[hidden: 15 bytes, not a JSON object, error at line 1 column 1]"),
            (b"{\"name\":\"x\",\n \"secret", "[hidden: 21 bytes, not a JSON object, error at line 2 column 8]"),
            (b"{\"name\":\"x\"} secret", "[hidden: 19 bytes, not a JSON object, error at line 1 column 14]"),
            (b"{\"name\":\"\xff\"}", "[hidden: 12 bytes, not a JSON object, error at line 1 column 10]"),
            (b"\"secret\"", "[hidden: 8 bytes, not a JSON object, error at line 1 column 8]"),
        ] {
            assert_eq!(body(sent, Some(Operation::CreatePet)), shown);
        }
        let part = ReadBody { bytes: b"{\"name\":\"secret", is_complete: false };
        assert_eq!(
            super::body(part, Some(Operation::CreatePet)),
            "[hidden: the first 15 bytes, the rest was not read]"
        );
    }
}
