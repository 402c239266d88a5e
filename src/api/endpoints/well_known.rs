//! Documents at well-known addresses (RFC 8615).

use std::time::Duration;

use axum::http::header::LINK;
use axum::http::{HeaderMap, HeaderValue};
use http_body_util::Full;
use serde_json::json;

use crate::api::documents::file::File;
use crate::api::error::ApiError;
use crate::api::operations::Operation::{GetApiCatalog, GetDocument, GetDocument30, GetSecurityTxt};
use crate::api::response::Response;
use crate::api::state::Api;
use crate::config::{BaseUrl, Listener};

/// A linkset (RFC 9264) with the profile of API catalogs.
const LINKSET: &str = r#"application/linkset+json; profile="https://www.rfc-editor.org/info/rfc9727""#;

const CATALOG_LINK: HeaderValue = HeaderValue::from_static(r#"</.well-known/api-catalog>; rel="api-catalog""#);

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

/// Returns the addresses of the APIs, their descriptions and their health checks (RFC 9727).
pub fn api_catalog(api: &Api, request: &HeaderMap) -> Response {
    let addresses = api.addresses.reached_by(Listener::Store, request);
    let store = addresses.base_url.root();
    let documents = [GetDocument, GetDocument30].map(|document| format!("{store}{}", document.path()));
    let describe = |api: &BaseUrl| {
        json!({
            "anchor": api.as_str(),
            "service-desc": documents.each_ref().map(|href| json!({ "href": href, "type": "application/json" })),
            "service-doc": [{ "href": format!("{store}/docs"), "type": "text/html" }],
            "status": [{ "href": format!("{}/readyz", api.root()), "type": "application/json" }],
        })
    };
    let apis = [&addresses.base_url, &addresses.messages_base_url];
    let items = apis.map(|api| json!({ "href": api.as_str() }));
    let catalog = json!({
        "anchor": format!("{}{}", addresses.base_url.origin(), GetApiCatalog.path()),
        "item": items,
    });
    let [store_api, messages_api] = apis.map(describe);
    let linkset = json!({ "linkset": [catalog, store_api, messages_api] });
    let mut response = File::new(LINKSET, linkset.to_string()).respond(request).map(Full::new);
    response.headers_mut().insert(LINK, CATALOG_LINK);
    response
}
