//! Documents at well-known addresses (RFC 8615).

use std::time::Duration;

use axum::http::HeaderMap;
use http_body_util::Full;

use crate::api::documents::file::File;
use crate::api::error::ApiError;
use crate::api::operations::Operation::GetSecurityTxt;
use crate::api::response::Response;
use crate::api::state::Api;

/// Lifetime of `security.txt`, after which clients fetch it again.
const CONTACT_LIFETIME: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// Returns the contacts for vulnerability reports (RFC 9116). 404 if the operator has not set a contact.
pub fn security_txt(api: &Api, request: &HeaderMap) -> Result<Response, ApiError> {
    let addresses = &api.addresses;
    if addresses.security_contacts.is_empty() {
        return Err(ApiError::route_not_found());
    }
    let mut text: String = addresses.security_contacts.iter().map(|contact| format!("Contact: {contact}\n")).collect();
    // Counted from the beginning of the day, so that the text and its tag change once a day.
    text += &format!("Expires: {}\n", api.clock.now().to_the_day().plus(CONTACT_LIFETIME));
    if addresses.base_url.is_https() {
        text += &format!("Canonical: {}{}\n", addresses.base_url.origin(), GetSecurityTxt.path());
    }
    Ok(File::new("text/plain; charset=utf-8", text).respond(request).map(Full::new))
}
