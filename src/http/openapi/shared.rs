//! What the operations share: the errors that each of them can answer, and the headers of all answers.

use serde_json::{Map, Value, json};

use crate::config::Addresses;
use crate::http::error::{ApiError, Code};
use crate::http::idempotency;

/// The errors that every operation can answer, each described once: name, description, codes.
const ERRORS: [(&str, &str, &[Code]); 8] = [
    ("Unauthorized", "The API key is missing or invalid.", &[Code::MissingApiKey, Code::InvalidApiKey]),
    ("MethodNotAllowed", "The path does not have this method; `Allow` names those it has.", &[Code::MethodNotAllowed]),
    (
        "RequestTimeout",
        "The request did not arrive in time: 10 s for its head, 30 s for the whole.",
        &[Code::RequestTimeout],
    ),
    ("PayloadTooLarge", "The body is larger than 64 KiB.", &[Code::PayloadTooLarge]),
    (
        "UnsupportedMediaType",
        "The body is not declared as `application/json`, or has a `Content-Encoding` other than `identity`. In the second case the response has `Accept-Encoding`.",
        &[Code::UnsupportedMediaType],
    ),
    (
        "TooManyRequests",
        "The account has sent more requests than the service's rate limit allows, where it has one; `Retry-After` says when to go on.",
        &[Code::RateLimited],
    ),
    ("InternalError", "Something went wrong on the service's side.", &[Code::InternalError]),
    (
        "Unavailable",
        "The service can't take the request now; `Retry-After` says when to try again.",
        &[Code::Unavailable],
    ),
];

/// What an operation adds to its own 409.
pub const STILL_IN_PROGRESS: &str =
    "Or a request with the same `Idempotency-Key` is still in progress; then `Retry-After` says when to try again.";

/// Those of the operations that take an `Idempotency-Key`.
const KEY_ERRORS: [(&str, &str, &[Code]); 2] = [
    (
        "Conflict",
        "Provisional: a request with the same `Idempotency-Key` is still in progress; `Retry-After` says when to try again.",
        &[Code::Conflict],
    ),
    (
        "IdempotencyKeyReused",
        "Provisional: the `Idempotency-Key` was used for another request.",
        &[Code::IdempotencyKeyReused],
    ),
];

/// The shared errors under `components`.
pub fn errors() -> Map<String, Value> {
    let response = |&(name, description, codes): &(&str, &str, &[Code])| {
        let mut headers = json!({ "X-Request-Id": header("X-Request-Id") });
        match codes[0] {
            Code::MissingApiKey => headers["WWW-Authenticate"] = header("WWW-Authenticate"),
            Code::MethodNotAllowed => headers["Allow"] = header("Allow"),
            Code::UnsupportedMediaType => headers["Accept-Encoding"] = header("Accept-Encoding"),
            Code::Unavailable | Code::RateLimited | Code::Conflict => headers["Retry-After"] = header("Retry-After"),
            _ => {}
        }
        if !matches!(codes[0], Code::MissingApiKey | Code::MethodNotAllowed) {
            announce_rate_limit(&mut headers);
        }
        // An operation that has another conflict describes it itself.
        let example = |code: &Code| match code {
            Code::Conflict => idempotency::in_progress(),
            other => ApiError::example(*other),
        };
        let examples: Vec<_> = codes.iter().map(example).collect();
        let mut response =
            json!({ "description": description, "headers": headers, "content": error_content(&examples) });
        if description.starts_with("Provisional") {
            response["x-provisional"] = json!(true);
        }
        (name.to_owned(), response)
    };
    ERRORS.iter().chain(&KEY_ERRORS).map(response).collect()
}

/// Adds the headers of every answer to who has shown a key, where there is a rate limit.
pub fn announce_rate_limit(headers: &mut Value) {
    for name in ["RateLimit-Policy", "RateLimit"] {
        headers[name] = header(name);
    }
}

/// The statuses of the shared errors, each with a reference to its description.
pub fn error_references() -> impl Iterator<Item = (String, Value)> {
    ERRORS.iter().map(reference)
}

/// The same for the errors of operations that take an `Idempotency-Key`.
pub fn key_error_references() -> impl Iterator<Item = (String, Value)> {
    KEY_ERRORS.iter().map(reference)
}

fn reference((name, _, codes): &(&str, &str, &[Code])) -> (String, Value) {
    (codes[0].status().as_str().to_owned(), json!({ "$ref": format!("#/components/responses/{name}") }))
}

/// The header that makes it safe to send a request again.
pub fn idempotency_key() -> Value {
    json!({
        "name": "Idempotency-Key",
        "in": "header",
        "required": false,
        "description": "Provisional: a name for this request, of 1 to 255 visible ASCII characters, bare or as a quoted \
            string; best a new UUID. Sent again with the same key within 24 hours, the request is not carried out \
            again: the first answer is returned, with `Idempotent-Replayed: true`.",
        "schema": {
            "type": "string",
            "minLength": 1,
            "maxLength": 512,
            "pattern": r#"^([!#-~][!-~]{0,254}|"([!#-\[\]-~]|\\["\\]){1,255}")$"#,
        },
        "x-provisional": true,
    })
}

/// The body of an error response, with an example for each code it can have.
pub fn error_content(examples: &[ApiError]) -> Value {
    let example = |error: &ApiError| {
        let value: Value = serde_json::from_slice(&error.body()).expect("an error's body is JSON");
        let code = value["code"].as_str().expect("an error has a code").to_owned();
        (code, json!({ "value": value }))
    };
    let examples: Map<_, _> = examples.iter().map(example).collect();
    json!({ "application/json": { "schema": { "$ref": "#/components/schemas/Error" }, "examples": examples } })
}

/// A reference to a header under `components`.
pub fn header(name: &str) -> Value {
    json!({ "$ref": format!("#/components/headers/{name}") })
}

/// The headers under `components`. Those that an answer only sometimes has are not `required`.
pub fn headers(addresses: &Addresses) -> Value {
    let always = |description: &str, schema: Value, example: Value| json!({ "description": description, "required": true, "schema": schema, "example": example });
    let text = || json!({ "type": "string" });
    let base = addresses.base_url.as_reference();
    let (pets, root) = (format!("{base}/pets"), base.strip_suffix("/v1").unwrap_or(base));
    json!({
        "X-Request-Id": always(
            "The request's id: the caller's if it is 1 to 128 visible ASCII characters, else a new one.",
            json!({ "type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[!-~]+$" }),
            json!("8f14e45fceea167a-00000000002a"),
        ),
        "WWW-Authenticate": always(
            "How to authenticate; `error=\"invalid_token\"` follows where a key was given (RFC 6750).",
            text(),
            json!("Bearer realm=\"petstore\""),
        ),
        "Allow": always("The methods that the path has.", text(), json!("GET,HEAD,POST")),
        "Accept-Encoding": {
            "description": "The content codings that are accepted. Left out if the media type was refused.",
            "required": false,
            "schema": { "type": "string", "const": "identity" },
            "example": "identity",
        },
        "Retry-After": always(
            "After how many seconds to try again.",
            json!({ "type": "integer", "minimum": 1 }),
            json!(1),
        ),
        "RateLimit-Policy": {
            "description": "Where there is a rate limit: how many requests (`q`) an account may send at once, and in how many seconds (`w`) as many come back, one by one (draft-ietf-httpapi-ratelimit-headers).",
            "required": false,
            "schema": text(),
            "example": "\"default\";q=600;w=60",
        },
        "RateLimit": {
            "description": "Where there is a rate limit: how many requests remain (`r`), and in how many seconds (`t`) one more comes back (draft-ietf-httpapi-ratelimit-headers).",
            "required": false,
            "schema": text(),
            "example": "\"default\";r=599;t=1",
        },
        "Location": always(
            "The address of the new animal. Left out once `getPet` is removed.",
            json!({ "type": "string", "format": "uri-reference" }),
            json!(format!("{pets}/31")),
        ),
        "Idempotent-Replayed": {
            "description": "Provisional: the request had been carried out before, and this was its answer.",
            "required": false,
            "schema": { "type": "string", "const": "true" },
            "example": "true",
            "x-provisional": true,
        },
        "NextPageLink": {
            "description": "Provisional: the next page (RFC 8288), while more follow.",
            "required": false,
            "schema": text(),
            "example": format!("<{pets}?limit=20&after=20>; rel=\"next\""),
            "x-provisional": true,
        },
        "Deprecation": always(
            "Since when the operation is deprecated, in seconds of Unix time (RFC 9745): 2026-11-20.",
            json!({ "type": "string", "pattern": "^@[0-9]+$" }),
            json!("@1795132800"),
        ),
        "Sunset": always(
            "When the operation is removed (RFC 8594).",
            text(),
            json!("Thu, 05 Dec 2030 00:00:00 GMT"),
        ),
        "DeprecationLink": always(
            "A page about the deprecation, and the operation to use instead.",
            text(),
            json!(format!("<{root}/docs/deprecations>; rel=\"deprecation\", <{pets}>; rel=\"successor-version\"")),
        ),
    })
}
