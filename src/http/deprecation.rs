//! `GET /pets/{petId}` on its way out: announced on every answer of it, then gone.

use axum::extract::FromRequestParts;
use axum::http::header::LINK;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue};

use super::error::{ApiError, Code};
use super::operations::Operation::{GetPet, ListPets};
use super::state::Api;
use crate::config::Addresses;
use crate::domain::Timestamp;

/// 2026-11-20T00:00:00Z, as the `Deprecation` header writes it (RFC 9745).
const DEPRECATED: &str = "@1795132800";

/// The day the interface names, as the `Sunset` header writes it (RFC 8594).
const SUNSET: &str = "Thu, 05 Dec 2030 00:00:00 GMT";

/// 2030-12-05T00:00:00Z: from here on the operation is removed.
pub const REMOVED_AT: Timestamp = Timestamp::from_milliseconds(1_922_659_200_000);

pub const DEPRECATION_HEADER: HeaderName = HeaderName::from_static("deprecation");
pub const SUNSET_HEADER: HeaderName = HeaderName::from_static("sunset");

/// The first argument of the operation's handler, and so its first check: with or without a key, it is gone.
pub struct NotRemoved;

impl FromRequestParts<Api> for NotRemoved {
    type Rejection = ApiError;

    async fn from_request_parts(_: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        if !GetPet.is_removed(api.clock.recent()) {
            return Ok(Self);
        }
        Err(ApiError::new(
            Code::OperationRemoved,
            "This operation was removed on 5 December 2030; list animals with `GET /pets` and its `status` filter.",
        ))
    }
}

/// Announces the deprecation on every answer of the operation, whoever gives it: that is why the edge asks for it.
#[derive(Clone, Debug)]
pub struct Deprecation {
    link: HeaderValue,
}

impl Deprecation {
    pub fn of_get_pet(addresses: &Addresses) -> Self {
        let base = addresses.base_url.as_reference();
        let root = base.strip_suffix("/v1").unwrap_or(base);
        let link = format!(
            r#"<{root}/docs/deprecations>; rel="deprecation", <{base}{}>; rel="successor-version""#,
            ListPets.api_path()
        );
        Self { link: HeaderValue::try_from(link).expect("an address has visible ASCII characters only") }
    }

    pub fn announce(&self, headers: &mut HeaderMap) {
        headers.insert(DEPRECATION_HEADER, HeaderValue::from_static(DEPRECATED));
        headers.insert(SUNSET_HEADER, HeaderValue::from_static(SUNSET));
        headers.insert(LINK, self.link.clone());
    }
}
