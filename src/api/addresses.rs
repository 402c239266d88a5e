//! Bound and public addresses of the service.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use axum::http::HeaderMap;
use axum::http::header::HOST;
use axum::http::uri::{Authority, Scheme};

use super::operations::Listener;
use crate::domain::Invalid;

/// A public base URL: `http` or `https`, a host, an optional path, and `/v1` at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseUrl {
    url: String,
    /// The address of the listener, if `url` was not configured. If it is every address of the machine (`0.0.0.0` or
    /// `[::]`), only the clients know by which host they reach it. `url` then has the loopback address, which works on this
    /// machine.
    bound: Option<SocketAddr>,
}

impl BaseUrl {
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let url: Option<http::Uri> = text.parse().ok();
        let well_formed = url.is_some_and(|url| {
            matches!(url.scheme_str(), Some("http" | "https"))
                && url.host().is_some_and(|host| !host.is_empty())
                && (url.port_u16().is_some() || url.host() == url.authority().map(Authority::as_str))
                && url.query().is_none()
        });
        let (origin, path) = text.split_at(origin_length(text));
        if !well_formed
            || !path.ends_with("/v1")
            || !text.bytes().all(|byte| byte.is_ascii_graphic() && !b"<>\"#@;,'".contains(&byte))
        {
            return Err(Invalid(
                "a base URL is http:// or https://, a host and an optional path, and ends in /v1".into(),
            ));
        }
        // Scheme and host are case-insensitive (RFC 3986, section 6.2.2.1), and browsers shorten IPv6 addresses.
        let origin = origin.to_ascii_lowercase();
        let shortened = origin.split_once('[').and_then(|(scheme, rest)| {
            let (ip, port) = rest.split_once(']')?;
            let ip: Ipv6Addr = ip.parse().ok()?;
            // Browsers write an IPv4-mapped address in hexadecimal digits, `Display` does not.
            ip.to_ipv4_mapped().is_none().then(|| format!("{scheme}[{ip}]{port}"))
        });
        Ok(Self { url: shortened.unwrap_or(origin) + path, bound: None })
    }

    /// Returns the base URL of a listener without a configured one.
    pub fn of_bound(scheme: &Scheme, address: SocketAddr) -> Self {
        Self { url: format!("{scheme}://{}/v1", reachable(address)), bound: Some(address) }
    }

    /// Returns whether only the clients know the host by which they reach the listener.
    pub fn is_at_any_host(&self) -> bool {
        self.bound.is_some_and(|address| address.ip().is_unspecified())
    }

    pub fn is_https(&self) -> bool {
        self.url.starts_with("https:")
    }

    pub fn as_str(&self) -> &str {
        &self.url
    }

    /// Returns the base of `Location` and `Link`. It is relative (RFC 3986, section 4.2) if only the client knows the
    /// host; the client resolves it against the URL of its request.
    pub fn as_reference(&self) -> &str {
        if self.is_at_any_host() { "/v1" } else { &self.url }
    }

    /// Returns the URL without `/v1`, which is the root of the pages.
    pub fn root(&self) -> &str {
        self.url.strip_suffix("/v1").unwrap_or(&self.url)
    }

    /// Returns the path of the pages' root without a slash at its end. Empty if they are not below a path.
    pub fn path(&self) -> &str {
        self.root()[origin_length(self.root())..].trim_end_matches('/')
    }

    /// Returns scheme, host and port as browsers send them in `Origin` (RFC 6454, section 6.2).
    pub fn origin(&self) -> String {
        let origin = self.url[..origin_length(&self.url)].to_ascii_lowercase();
        let default_port = if origin.starts_with("https:") { ":443" } else { ":80" };
        origin.strip_suffix(default_port).unwrap_or(&origin).to_owned()
    }
}

fn origin_length(url: &str) -> usize {
    url.match_indices('/').nth(2).map_or(url.len(), |(path, _)| path)
}

/// Returns the address by which this machine reaches the listener: loopback if it is bound to every address.
pub fn reachable(address: SocketAddr) -> SocketAddr {
    // Without IPv6, a process can bind `[::]` but not reach `[::1]`.
    let ip = if address.ip().is_unspecified() { Ipv4Addr::LOCALHOST.into() } else { address.ip() };
    SocketAddr::new(ip, address.port())
}

/// Addresses that appear in responses, pages and the OpenAPI document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    pub base_url: BaseUrl,
    pub messages_base_url: BaseUrl,
    pub staging_base_url: Option<BaseUrl>,
    pub cors_origins: Vec<String>,
    /// Contacts for vulnerability reports, as URLs.
    pub security_contacts: Vec<String>,
    /// Scheme of the listeners themselves, which may differ from that of the public URLs.
    pub scheme: Scheme,
    /// Bound address of the store listener.
    pub store_bound: SocketAddr,
}

impl Addresses {
    /// Returns the base URL of the operations of `listener`. Operations of every listener have the store's base URL.
    pub const fn base_url_of(&self, listener: Option<Listener>) -> &BaseUrl {
        match listener {
            Some(Listener::Messages) => &self.messages_base_url,
            _ => &self.base_url,
        }
    }

    /// Returns the origins of the store listener's own pages.
    pub fn store_origins(&self) -> [String; 2] {
        [BaseUrl::of_bound(&self.scheme, self.store_bound).origin(), self.base_url.origin()]
    }

    /// Returns the addresses by which the client of a request to `listener` reaches the service. A listener that is bound to
    /// every address and has no configured base URL gets the host in `Host`, as does one that is bound to the loopback if
    /// that is `localhost`.
    ///
    /// A cached response that depends on `Host` does not reach clients of other hosts, because `Host` is part of the
    /// cache key (RFC 9111, section 2).
    pub fn reached_by(self: &Arc<Self>, listener: Listener, request: &HeaderMap) -> Arc<Self> {
        let Some(authority) = named_host(request) else { return Arc::clone(self) };
        let is_localhost = authority.host().eq_ignore_ascii_case("localhost");
        let is_at_host = |bound: &SocketAddr| bound.ip().is_unspecified() || is_localhost && bound.ip().is_loopback();
        let mut reached = Self::clone(self);
        for (of, base) in
            [(Listener::Store, &mut reached.base_url), (Listener::Messages, &mut reached.messages_base_url)]
        {
            match base.bound.filter(is_at_host) {
                // The port is that of the request, because a container's host may map ports.
                Some(_) if of == listener => base.url = format!("{}://{authority}/v1", self.scheme),
                Some(bound) => base.url = format!("{}://{}:{}/v1", self.scheme, authority.host(), bound.port()),
                None => {}
            }
        }
        if reached == **self { Arc::clone(self) } else { Arc::new(reached) }
    }
}

/// Parses `Host`: a host and an optional port. `None` unless the host is an IP address, or a name of letters, digits,
/// hyphens, underscores and dots. Other characters must not get into pages and headers.
fn named_host(request: &HeaderMap) -> Option<Authority> {
    let authority: Authority = request.get(HOST)?.to_str().ok()?.parse().ok()?;
    let (host, port) = authority.as_str().split_at_checked(authority.host().len())?;
    let ipv6 = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = match ipv6 {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)),
    };
    // If there is user information, the text does not begin with the host, and `port` is not a port.
    let is_port = port.is_empty() || authority.port_u16().is_some_and(|number| port == format!(":{number}"));
    (is_host && is_port && authority.as_str().starts_with(authority.host())).then_some(authority)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(store: &str, messages: &str) -> Arc<Addresses> {
        let (store_bound, messages): (SocketAddr, SocketAddr) = (store.parse().unwrap(), messages.parse().unwrap());
        Arc::new(Addresses {
            base_url: BaseUrl::of_bound(&Scheme::HTTP, store_bound),
            messages_base_url: BaseUrl::of_bound(&Scheme::HTTP, messages),
            staging_base_url: None,
            cors_origins: Vec::new(),
            security_contacts: Vec::new(),
            scheme: Scheme::HTTP,
            store_bound,
        })
    }

    fn reached(addresses: &Arc<Addresses>, listener: Listener, host: &str) -> [String; 2] {
        let request = HeaderMap::from_iter([(HOST, host.parse().unwrap())]);
        let reached = addresses.reached_by(listener, &request);
        [reached.base_url.as_str().to_owned(), reached.messages_base_url.as_str().to_owned()]
    }

    #[test]
    fn a_listener_bound_to_every_address_is_printed_as_loopback() {
        let printed = |bound: &str| BaseUrl::of_bound(&Scheme::HTTP, bound.parse().unwrap()).as_str().to_owned();
        assert_eq!(printed("0.0.0.0:8080"), "http://127.0.0.1:8080/v1");
        assert_eq!(printed("[::]:8080"), "http://127.0.0.1:8080/v1");
        assert_eq!(printed("192.0.2.1:8080"), "http://192.0.2.1:8080/v1");
    }

    #[test]
    fn only_a_listener_bound_to_every_address_follows_the_host() {
        let any = addresses("0.0.0.0:8080", "[::]:8081");
        for (host, url) in [
            ("shop.example:9090", ["http://shop.example:9090/v1", "http://shop.example:8081/v1"]),
            ("192.0.2.7", ["http://192.0.2.7/v1", "http://192.0.2.7:8081/v1"]),
            ("[2001:db8::7]:8080", ["http://[2001:db8::7]:8080/v1", "http://[2001:db8::7]:8081/v1"]),
        ] {
            assert_eq!(reached(&any, Listener::Store, host), url, "{host}");
        }
        let beside = ["http://shop.example:8080/v1", "http://shop.example:9091/v1"];
        assert_eq!(reached(&any, Listener::Messages, "shop.example:9091"), beside);
        let one = addresses("192.0.2.1:8080", "192.0.2.1:8081");
        assert_eq!(
            reached(&one, Listener::Store, "evil.example"),
            ["http://192.0.2.1:8080/v1", "http://192.0.2.1:8081/v1"]
        );
    }

    #[test]
    fn a_host_that_is_not_one_is_not_repeated() {
        let any = addresses("0.0.0.0:8080", "0.0.0.0:8081");
        let loopback = ["http://127.0.0.1:8080/v1", "http://127.0.0.1:8081/v1"];
        for host in [
            "", ":8080", "a:", "a:x", "a:+1", "a:65536", "user@a", "a@a", "a'b", "a;b", "a,b", "a%41", "a*", "[::1",
            "[a]", "::1", "a b", "a/b", "<a>",
        ] {
            assert_eq!(reached(&any, Listener::Store, host), loopback, "{host}");
        }
    }

    #[test]
    fn base_addresses_end_in_v1_and_know_their_origin() {
        let url = BaseUrl::parse("https://Api.example.com:443/shop/v1").unwrap();
        assert_eq!(url.origin(), "https://api.example.com");
        assert_eq!((url.root(), url.path()), ("https://api.example.com:443/shop", "/shop"));
        let upper = BaseUrl::parse("HTTPS://SHOP.EXAMPLE/A/v1").unwrap();
        assert_eq!((upper.as_str(), upper.path(), upper.is_https()), ("https://shop.example/A/v1", "/A", true));
        assert_eq!(BaseUrl::parse("https://api.example.com/v1").unwrap().path(), "");
        assert_eq!(BaseUrl::parse("http://127.0.0.1:8080/v1").unwrap().origin(), "http://127.0.0.1:8080");
        assert_eq!(BaseUrl::parse("http://[0:0::01]:80/v1").unwrap().origin(), "http://[::1]");
        for refused in [
            "http://v1", "", "/v1", "ftp://a/v1", "https://a/v1/", "https://a", "https:///v1", "https://a/v1?x=/v1",
            "https://a/<>/v1", "https://a:99999/v1", "https://a:/v1",
        ] {
            assert!(BaseUrl::parse(refused).is_err(), "{refused}");
        }
    }
}
