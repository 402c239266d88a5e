//! URL of the web server.

use std::fmt;
use std::net::IpAddr;

use axum::http::Uri;

use crate::domain::Invalid;

/// The value of `--relay`: `https://HOST/PATH` or `http://HOST/PATH`. Displayed without its query, which may contain a secret.
#[derive(Clone)]
pub struct RelayUrl(Uri);

impl RelayUrl {
    /// Errors quote no part of `text`, because any part may be a piece of a password.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        if ["nats://", "tls://"].iter().any(|scheme| text.starts_with(scheme)) {
            let why = "is that of a NATS server: give that of a bridge, such as the one in docs/relay.md#to-a-broker";
            return Err(Invalid(why.into()));
        }
        let why = "is not https://HOST/PATH (in ASCII, without a user, a fragment or @; http:// to this machine, as in http://127.0.0.1:8000/)";
        Self::read(text).ok_or_else(|| Invalid(why.into()))
    }

    /// `None` if `text` is not such a URL, or has user information, a fragment, or characters other than ASCII.
    fn read(text: &str) -> Option<Self> {
        let uri: Uri = text.parse().ok()?;
        let host = uri.host().filter(|host| !host.is_empty())?;
        let is_permitted = matches!(uri.scheme_str()?, "https" | "http");
        let has_port = uri.port_u16().is_some() || uri.authority()?.as_str() == host;
        (is_permitted && has_port && text.is_ascii() && !text.contains(['@', '#'])).then_some(Self(uri))
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
    host.eq_ignore_ascii_case("localhost")
        || host.trim_matches(['[', ']']).parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

impl fmt::Display for RelayUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, authority) = (self.0.scheme_str().unwrap_or_default(), self.0.authority());
        write!(f, "{scheme}://{}{}", authority.map_or("", |authority| authority.as_str()), self.0.path())?;
        f.write_str(if self.0.query().is_some() { "?[hidden]" } else { "" })
    }
}

impl fmt::Debug for RelayUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
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
            assert_eq!(RelayUrl::parse(text).expect(text).to_string(), shown);
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
            ("http://LOCALHOST/", false),
            ("https://shop.example/", false),
        ] {
            assert_eq!(RelayUrl::parse(text).expect(text).is_plaintext(), is_plaintext, "{text}");
        }
    }

    #[test]
    fn other_urls_are_rejected_and_not_quoted() {
        for text in [
            "", "s3cret", "https://", "https:///hook", "shop.example/hook", "/hook", "ftp://shop.example/",
            "https://ada:s3cret@shop.example/", "http://s3cret@127.0.0.1/", "https://shop.example/s3cret@b",
            "https://shop.example/#s3cret", "https://shop.example:port/", "https://shop.example:/",
            "https://shop.example:99999/", "nats://ada:s3cret@n1", "nats://n1,ada:s3cret@n2", "tls://s3cret@n1:4222",
        ] {
            let why = RelayUrl::parse(text).expect_err(text).to_string();
            let page = text.starts_with("nats") || text.starts_with("tls");
            assert!(why.contains("docs/relay.md") == page && !why.contains("s3cret"), "{text}: {why}");
        }
    }
}
