//! URL of the endpoint.

use std::fmt;
use std::net::IpAddr;

use axum::http::Uri;

/// A URL `https://HOST/PATH` or `http://HOST/PATH`. Displayed without its query, which may contain a secret.
#[derive(Clone)]
pub struct EndpointUrl(Uri);

impl EndpointUrl {
    /// `None` if `text` is not such a URL, or has user information or a fragment.
    pub fn parse(text: &str) -> Option<Self> {
        let uri: Uri = text.parse().ok()?;
        let host = uri.host().filter(|host| !host.is_empty())?;
        let is_permitted = matches!(uri.scheme_str()?, "https" | "http");
        let has_port = uri.port_u16().is_some() || uri.authority()?.as_str() == host;
        (is_permitted && has_port && !text.contains(['@', '#'])).then_some(Self(uri))
    }

    pub const fn uri(&self) -> &Uri {
        &self.0
    }

    /// Returns whether messages would pass a network unencrypted.
    pub fn is_plaintext(&self) -> bool {
        !self.is_https() && !self.0.host().is_some_and(is_loopback)
    }

    pub fn is_https(&self) -> bool {
        self.0.scheme_str() == Some("https")
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.trim_matches(['[', ']']).parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

impl fmt::Display for EndpointUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, authority) = (self.0.scheme_str().unwrap_or_default(), self.0.authority());
        write!(f, "{scheme}://{}{}", authority.map_or("", |authority| authority.as_str()), self.0.path())?;
        f.write_str(if self.0.query().is_some() { "?[hidden]" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_hides_the_query() {
        for (text, shown) in [
            ("https://shop.example/hooks/1", "https://shop.example/hooks/1"),
            ("https://shop.example", "https://shop.example/"),
            ("https://shop.example:8443/hook?token=s3cret", "https://shop.example:8443/hook?[hidden]"),
            ("http://[::1]:8000/", "http://[::1]:8000/"),
            ("http://localhost/", "http://localhost/"),
            ("http://127.1.2.3:80", "http://127.1.2.3:80/"),
        ] {
            assert_eq!(EndpointUrl::parse(text).expect(text).to_string(), shown);
        }
    }

    #[test]
    fn http_to_other_machines_is_plaintext() {
        for (text, is_plaintext) in [
            ("http://shop.example/", true),
            ("http://10.0.0.1/", true),
            ("http://127.0.0.1.example.com/", true),
            ("http://127.1.2.3/", false),
            ("http://[::1]:80/", false),
            ("http://localhost/", false),
            ("https://shop.example/", false),
        ] {
            assert_eq!(EndpointUrl::parse(text).expect(text).is_plaintext(), is_plaintext, "{text}");
        }
    }

    #[test]
    fn other_urls_are_rejected() {
        for text in [
            "https://", "https:///hook", "shop.example/hook", "/hook", "ftp://shop.example/",
            "https://ada:secret@shop.example/", "http://ada@127.0.0.1/", "https://shop.example/a@b",
            "https://shop.example/#a", "https://shop.example:port/", "https://shop.example:/",
            "https://shop.example:99999/",
        ] {
            assert!(EndpointUrl::parse(text).is_none(), "{text}");
        }
    }
}
