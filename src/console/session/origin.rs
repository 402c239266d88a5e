//! Checks that a form was sent by one of our own pages, which keeps other sites from acting for the user (CSRF).

use axum::http::HeaderMap;
use axum::http::header::{HOST, ORIGIN};

use crate::api::Addresses;

/// Returns whether a form comes from our own pages. Over TLS and on the same machine, `Sec-Fetch-Site` says so, and `Origin` may
/// be `null` or, behind a tunnel, have a name that the service does not know. Otherwise browsers send only `Origin`. A request
/// without either does not come from a browser, and programs have the API.
pub fn is_ours(headers: &HeaderMap, addresses: &Addresses) -> bool {
    match headers.get("sec-fetch-site") {
        Some(site) => site == "same-origin",
        None => headers
            .get(ORIGIN)
            .is_some_and(|given| given.to_str().is_ok_and(|origin| is_own(origin, headers, addresses))),
    }
}

/// Returns whether our pages may have this origin: where the listener is bound, where it is reached, or the name by which
/// the page was opened.
fn is_own(origin: &str, headers: &HeaderMap, addresses: &Addresses) -> bool {
    let by_name = || {
        // Browsers leave the default port out, and proxies may add it.
        let (scheme, port) = if addresses.base_url.is_https() { ("https://", ":443") } else { ("http://", ":80") };
        let host = headers.get(HOST)?.to_str().ok()?;
        Some(origin.strip_prefix(scheme)? == host.strip_suffix(port).unwrap_or(host))
    };
    addresses.store_origins().iter().any(|own| own == origin) || by_name().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use axum::http::uri::Scheme;

    use super::*;
    use crate::api::BaseUrl;

    #[test]
    fn site_decides_before_the_origin() {
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
                let expected = site_is_right.or(origin_is_right).unwrap_or(false);
                assert_eq!(is_ours(&headers, &addresses), expected, "{site:?} {origin:?}");
            }
        }
        let headers = |host: &str| {
            HeaderMap::from_iter(
                [(HOST, host), (ORIGIN, "https://by.name")].map(|(name, value)| (name, value.parse().unwrap())),
            )
        };
        assert_eq!(["by.name:443", "by.name:80"].map(|host| is_ours(&headers(host), &addresses)), [true, false]);
    }
}
