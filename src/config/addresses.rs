//! Where the service is reached: the addresses bound, and those that are public.

use std::net::SocketAddr;

use super::Service;
use crate::domain::Invalid;

/// What the doors themselves speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    Http,
    Https,
}

impl std::fmt::Display for Scheme {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Http => "http",
            Self::Https => "https",
        })
    }
}

/// A public base address: `http` or `https`, a host, perhaps a path, and `/v1` at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseUrl(String);

impl BaseUrl {
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let url: Option<http::Uri> = text.parse().ok();
        let well_formed = url.is_some_and(|url| {
            matches!(url.scheme_str(), Some("http" | "https"))
                && url.host().is_some_and(|host| !host.is_empty())
                && url.query().is_none()
        });
        if !well_formed
            || !text.ends_with("/v1")
            || !text.bytes().all(|byte| byte.is_ascii_graphic() && !b"<>\"#@;,'".contains(&byte))
        {
            return Err(Invalid(
                "a base address is http:// or https://, a host, perhaps a path, and ends in /v1".into(),
            ));
        }
        Ok(Self(text.to_owned()))
    }

    /// The base address of a door that is reached where it is bound.
    pub fn of_bound(scheme: Scheme, address: SocketAddr) -> Self {
        Self(format!("{scheme}://{address}/v1"))
    }

    pub fn is_https(&self) -> bool {
        self.0.starts_with("https:")
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn path(&self, path: &str) -> String {
        format!("{}{path}", self.0)
    }

    /// The address without `/v1`: where the pages are.
    pub fn root(&self) -> &str {
        self.0.strip_suffix("/v1").unwrap_or(&self.0)
    }

    /// Scheme, host and port, as a browser writes them in `Origin` (RFC 6454, section 6.2).
    pub fn origin(&self) -> String {
        let end = self.0.find("://").map_or(0, |scheme| scheme + 3);
        let host_end = self.0[end..].find('/').map_or(self.0.len(), |path| end + path);
        let origin = self.0[..host_end].to_ascii_lowercase();
        let default_port = if origin.starts_with("https:") { ":443" } else { ":80" };
        origin.strip_suffix(default_port).unwrap_or(&origin).to_owned()
    }
}

/// The addresses that answers, pages and the document name.
#[derive(Clone, Debug)]
pub struct Addresses {
    pub base_url: BaseUrl,
    pub messages_base_url: BaseUrl,
    pub staging_base_url: Option<BaseUrl>,
    pub cors_origins: Vec<String>,
    /// What the doors speak, and where the store's is bound.
    pub scheme: Scheme,
    pub store_bound: SocketAddr,
}

impl Addresses {
    pub fn new(service: &Service, store_bound: SocketAddr, messages_bound: SocketAddr) -> Self {
        let scheme = if service.tls_cert.is_some() { Scheme::Https } else { Scheme::Http };
        let known = |configured: &Option<BaseUrl>, bound| {
            configured.clone().unwrap_or_else(|| BaseUrl::of_bound(scheme, bound))
        };
        Self {
            base_url: known(&service.base_url, store_bound),
            messages_base_url: known(&service.messages_base_url, messages_bound),
            staging_base_url: service.staging_base_url.clone(),
            cors_origins: service.cors_origin.clone(),
            scheme,
            store_bound,
        }
    }

    /// The origins that the store door's own pages have.
    pub fn store_origins(&self) -> Vec<String> {
        let mut origins = vec![BaseUrl::of_bound(self.scheme, self.store_bound).origin(), self.base_url.origin()];
        origins.dedup();
        origins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_addresses_end_in_v1_and_know_their_origin() {
        let url = BaseUrl::parse("https://Api.example.com:443/shop/v1").unwrap();
        assert_eq!(url.origin(), "https://api.example.com");
        assert_eq!(url.root(), "https://Api.example.com:443/shop");
        assert_eq!(BaseUrl::parse("http://127.0.0.1:8080/v1").unwrap().origin(), "http://127.0.0.1:8080");
        for refused in [
            "",
            "/v1",
            "ftp://a/v1",
            "https://a/v1/",
            "https://a",
            "https:///v1",
            "https://a/v1?x=/v1",
            "https://a/<>/v1",
        ] {
            assert!(BaseUrl::parse(refused).is_err(), "{refused}");
        }
    }
}
