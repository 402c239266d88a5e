//! Checks that a form was sent by one of our own pages, which keeps other sites from acting for the user (CSRF).

use axum::http::HeaderMap;
use axum::http::header::{HOST, ORIGIN};

use crate::api::Addresses;

/// Returns whether a form comes from our own pages. Current browsers send its origin in `Origin` or, over TLS and on
/// the same machine, in `Sec-Fetch-Site` too. Each that is present must match, and one must be present: a request
/// without either does not come from a browser, and programs have the API.
pub fn is_ours(headers: &HeaderMap, addresses: &Addresses) -> bool {
    let site = headers.get("sec-fetch-site").map(|site| site == "same-origin");
    let origin =
        headers.get(ORIGIN).map(|origin| origin.to_str().is_ok_and(|origin| is_own(origin, headers, addresses)));
    let given = [site, origin];
    given.contains(&Some(true)) && !given.contains(&Some(false))
}

/// Returns whether our pages may have this origin: where the listener is bound, where it is reached, or the name by which
/// the page was opened.
fn is_own(origin: &str, headers: &HeaderMap, addresses: &Addresses) -> bool {
    let by_name = || {
        let scheme = if addresses.base_url.is_https() { "https://" } else { "http://" };
        Some(origin.strip_prefix(scheme)? == headers.get(HOST)?)
    };
    addresses.store_origins().iter().any(|own| own == origin) || by_name().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use axum::http::uri::Scheme;

    use super::*;
    use crate::api::BaseUrl;

    #[test]
    fn origin_must_be_present_and_ours() {
        let ours = "https://shop.example";
        let sites = [
            (None, None),
            (Some("same-origin"), Some(true)),
            (Some("same-site"), Some(false)),
            (Some("cross-site"), Some(false)),
            (Some("none"), Some(false)),
        ];
        let origins = [
            (None, None),
            (Some(ours), Some(true)),
            (Some("https://by.name:8443"), Some(true)),
            (Some("http://127.0.0.1:8080"), Some(true)),
            (Some("http://by.name:8443"), Some(false)),
            (Some("https://evil.example"), Some(false)),
            (Some("null"), Some(false)),
            (Some(""), Some(false)),
            (Some("https://shop.example.evil.example"), Some(false)),
        ];
        let store_bound = "127.0.0.1:8080".parse().unwrap();
        let addresses = Addresses {
            base_url: BaseUrl::parse("https://shop.example/v1").unwrap(),
            messages_base_url: BaseUrl::of_bound(&Scheme::HTTP, store_bound),
            staging_base_url: None,
            cors_origins: vec!["https://evil.example".into()],
            security_contacts: Vec::new(),
            scheme: Scheme::HTTP,
            store_bound,
        };
        for (site, site_is_right) in sites {
            for (origin, origin_is_right) in origins {
                let mut headers = HeaderMap::new();
                headers.insert(HOST, "by.name:8443".parse().unwrap());
                site.map(|site| headers.insert("sec-fetch-site", site.parse().unwrap()));
                origin.map(|origin| headers.insert(ORIGIN, origin.parse().unwrap()));
                let said: Vec<bool> = [site_is_right, origin_is_right].into_iter().flatten().collect();
                let expected = !said.is_empty() && said.iter().all(|right| *right);
                assert_eq!(is_ours(&headers, &addresses), expected, "{site:?} {origin:?}");
            }
        }
    }
}
