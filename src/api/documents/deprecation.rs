//! The deprecation and removal of `GET /pets/{petId}`.

use axum::http::header::LINK;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use bytes::Bytes;
use http_body_util::Full;

use crate::api::addresses::Addresses;
use crate::api::error::{ApiError, Code};
use crate::api::operations::Operation::{self, GetPet, ListPets};
use crate::api::response::{self, Response, X_REQUEST_ID};
use crate::domain::Timestamp;

/// 2026-11-20T00:00:00Z in the format of the `Deprecation` header (RFC 9745).
const DEPRECATED: &str = "@1795132800";

/// The date of the removal in the format of the `Sunset` header (RFC 8594).
const SUNSET: &str = "Thu, 05 Dec 2030 00:00:00 GMT";

/// 2030-12-05T00:00:00Z, from which the operation is removed.
pub const REMOVED_AT: Timestamp = Timestamp::from_milliseconds(1_922_659_200_000);

pub const DEPRECATION_HEADER: HeaderName = HeaderName::from_static("deprecation");
pub const SUNSET_HEADER: HeaderName = HeaderName::from_static("sunset");

pub fn is_removed(operation: Operation, now: Timestamp) -> bool {
    operation == GetPet && now >= REMOVED_AT
}

/// The error for requests after the removal.
pub fn removed() -> ApiError {
    ApiError::new(
        Code::OperationRemoved,
        "This operation was removed on 5 December 2030; list animals with `GET /pets` and its `status` filter.",
    )
}

/// The headers of a successful response, with a placeholder for the request id. Three announce the deprecation. The
/// listener's service adds these to every response, because errors from outside the handler have them too.
#[derive(Debug)]
pub struct Deprecation(HeaderMap);

impl Deprecation {
    pub fn of_get_pet(addresses: &Addresses) -> Self {
        let base = addresses.base_url.as_reference();
        let root = base.strip_suffix("/v1").unwrap_or(base);
        let link = format!(
            r#"<{root}/docs/deprecations>; rel="deprecation", <{base}{}>; rel="successor-version""#,
            ListPets.api_path()
        );
        let mut headers = response::json(StatusCode::OK, "").into_parts().0.headers;
        headers.insert(DEPRECATION_HEADER, HeaderValue::from_static(DEPRECATED));
        headers.insert(SUNSET_HEADER, HeaderValue::from_static(SUNSET));
        headers.insert(LINK, HeaderValue::try_from(link).expect("an address has visible ASCII characters only"));
        headers.insert(X_REQUEST_ID, HeaderValue::from_static(""));
        Self(headers)
    }

    /// The operation's successful response. Copying a map of headers is several times as quick as filling one.
    pub fn json(&self, body: impl Into<Bytes>) -> Response {
        let mut response = Response::new(Full::new(body.into()));
        *response.headers_mut() = self.0.clone();
        response
    }

    pub fn announce(&self, headers: &mut HeaderMap) {
        if !headers.contains_key(LINK) {
            for name in [DEPRECATION_HEADER, SUNSET_HEADER, LINK] {
                headers.insert(&name, self.0[&name].clone());
            }
        }
    }
}
