//! `GET /pets/{petId}` on its way out: announced on every answer of it, then gone.

use axum::extract::{Request, State};
use axum::http::header::LINK;
use axum::http::{HeaderName, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::error::{ApiError, Code};
use super::state::Api;
use crate::config::Addresses;
use crate::domain::Timestamp;

/// 2026-11-20T00:00:00Z, as the `Deprecation` header writes it (RFC 9745).
const DEPRECATED: &str = "@1795132800";

/// The same day the interface names, as the `Sunset` header writes it (RFC 8594).
const SUNSET: &str = "Thu, 05 Dec 2030 00:00:00 GMT";

/// 2030-12-05T00:00:00Z: from here on the operation is removed.
pub const REMOVED_AT: Timestamp = Timestamp::from_milliseconds(1_922_659_200_000);

const DEPRECATION_HEADER: HeaderName = HeaderName::from_static("deprecation");
const SUNSET_HEADER: HeaderName = HeaderName::from_static("sunset");

/// What is said of a deprecated operation.
#[derive(Debug)]
pub struct Deprecation {
    link: HeaderValue,
}

impl Deprecation {
    pub fn of_get_pet(addresses: &Addresses) -> Self {
        let root = addresses.base_url.root();
        let list = addresses.base_url.path("/pets");
        let link = format!(r#"<{root}/docs/deprecations>; rel="deprecation", <{list}>; rel="successor-version""#);
        Self { link: HeaderValue::try_from(link).expect("an address has visible ASCII characters only") }
    }
}

/// Stands before everything that the path `/pets/{petId}` answers.
pub async fn of_get_pet(State(api): State<Api>, request: Request, next: Next) -> Response {
    let is_operation = matches!(*request.method(), Method::GET | Method::HEAD);
    let mut response = match (api.clock.now() >= REMOVED_AT, is_operation) {
        (false, _) => next.run(request).await,
        (true, true) => removed().into_response(),
        // Without its operation the path is no route any more.
        (true, false) => ApiError::route_not_found().into_response(),
    };
    if is_operation {
        let headers = response.headers_mut();
        headers.insert(DEPRECATION_HEADER, HeaderValue::from_static(DEPRECATED));
        headers.insert(SUNSET_HEADER, HeaderValue::from_static(SUNSET));
        headers.insert(LINK, api.get_pet.link.clone());
    }
    response
}

fn removed() -> ApiError {
    ApiError::new(
        Code::OperationRemoved,
        "This operation was removed on 5 December 2030; list animals with `GET /pets` and its `status` filter.",
    )
}
