//! The network address of a client, also behind trusted proxies.

use std::net::{IpAddr, SocketAddr};
use std::sync::Once;

use axum::http::header::FORWARDED;
use axum::http::{HeaderMap, HeaderValue};

use crate::domain::{Actor, Invalid, Timestamp};
use crate::redaction::without_keys;

const X_FORWARDED_FOR: &str = "x-forwarded-for";

/// The peer that a request came from, and the request's id. An extension of requests for pages.
#[derive(Clone, Debug)]
pub struct Peer {
    pub address: IpAddr,
    pub request_id: HeaderValue,
}

impl Peer {
    /// Returns the actor of a change that the account with this email address requests. A key in the request's id, which the
    /// client chose, is hidden.
    pub fn actor(&self, email: String, client_address: IpAddr, at: Timestamp) -> Actor {
        let request_id = String::from_utf8_lossy(&without_keys(self.request_id.as_bytes())).into_owned();
        Actor { at, name: email.into(), client_address: Some(client_address), request_id: Some(request_id) }
    }
}

/// Returns the address of the client. If `peer` is a trusted proxy, that is the last address in `X-Forwarded-For` that is
/// not a trusted proxy itself. Addresses before it are ignored, because the client may have forged them.
pub fn client_address(peer: IpAddr, headers: &HeaderMap, trusted: &[Network]) -> IpAddr {
    let is_trusted = |address: IpAddr| trusted.iter().any(|network| network.contains(address));
    if !is_trusted(peer) {
        return peer;
    }
    if headers.contains_key(FORWARDED) && !headers.contains_key(X_FORWARDED_FOR) {
        static WARNED: Once = Once::new();
        WARNED.call_once(|| {
            tracing::warn!(proxy = %peer, "trusted proxy sends Forwarded without X-Forwarded-For, clients count as the proxy");
        });
    }
    // As bytes, because a client's non-ASCII byte must not remove what the proxy appended to the line.
    let lines = headers.get_all(X_FORWARDED_FOR).iter().rev().map(HeaderValue::as_bytes);
    let mut client = peer;
    for element in lines.flat_map(|line| line.rsplit(|byte| *byte == b',')) {
        match str::from_utf8(element.trim_ascii()).ok().and_then(parse_address) {
            Some(address) if is_trusted(client) => client = address,
            _ => break,
        }
    }
    client
}

/// Parses an address. `X-Forwarded-For` has no standard: some proxies add the port, and some put IPv6 addresses in
/// brackets.
fn parse_address(text: &str) -> Option<IpAddr> {
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok().map(IpAddr::V6);
    let with_port = || text.parse().ok().map(|address: SocketAddr| address.ip());
    text.parse().ok().or_else(with_port).or_else(bracketed)
}

/// The addresses of trusted proxies: an IP address, or a network in CIDR notation (RFC 4632): `10.0.0.1`, `10.0.0.0/8`,
/// `2001:db8::/32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u32,
}

impl Network {
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let invalid = || Invalid("a proxy is an IP address or a network, for instance 10.0.0.1 or 10.0.0.0/8".into());
        let (address, prefix) = text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
        let address: IpAddr = address.parse().map_err(|_| invalid())?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let prefix: u32 = prefix.map_or(Ok(longest), str::parse).map_err(|_| invalid())?;
        if prefix > longest {
            return Err(invalid());
        }
        // Peers are compared by their canonical address, so an IPv4 network mapped into IPv6 is that of IPv4.
        let (address, prefix) = match address.to_canonical() {
            canonical if canonical == address => (address, prefix),
            canonical => (canonical, prefix.checked_sub(96).ok_or_else(invalid)?),
        };
        Ok(Self { address, prefix })
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => (own.to_bits() ^ other.to_bits()).leading_zeros() >= self.prefix,
            (IpAddr::V6(own), IpAddr::V6(other)) => (own.to_bits() ^ other.to_bits()).leading_zeros() >= self.prefix,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The client's address behind `peer`, where 10.0.0.0/8 is trusted.
    fn client(peer: &str, lines: &[&[u8]]) -> String {
        let trusted = [Network::parse("10.0.0.0/8").unwrap()];
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(X_FORWARDED_FOR, HeaderValue::from_bytes(line).unwrap());
        }
        client_address(peer.parse().unwrap(), &headers, &trusted).to_string()
    }

    #[test]
    fn forwarded_address_counts_only_from_a_trusted_proxy() {
        assert_eq!(client("192.0.2.1", &[b"198.51.100.1"]), "192.0.2.1", "anybody can write that");
        assert_eq!(client("10.0.0.1", &[b"198.51.100.1"]), "198.51.100.1");
        assert_eq!(client("10.0.0.1", &[b"203.0.113.9, 198.51.100.1, 10.0.0.2"]), "198.51.100.1");
        assert_eq!(client("10.0.0.1", &[b"203.0.113.9", b"198.51.100.1"]), "198.51.100.1");
        assert_eq!(client("10.0.0.1", &[b"203.0.113.9, nonsense"]), "10.0.0.1");
        assert_eq!(client("10.0.0.1", &[]), "10.0.0.1");
    }

    #[test]
    fn other_bytes_of_a_client_hide_no_forwarded_address() {
        for (lines, address) in [
            (&[&b"\xff, 198.51.100.1"[..]][..], "198.51.100.1"),
            (&["203.0.113.9, é, 198.51.100.1".as_bytes()], "198.51.100.1"),
            (&[b"\xff", b"198.51.100.1, 10.0.0.2"], "198.51.100.1"),
            (&[b"203.0.113.9", b"\xff"], "10.0.0.1"),
            (&[b"203.0.113.9,\xff"], "10.0.0.1"),
        ] {
            assert_eq!(client("10.0.0.1", lines), address, "{lines:?}");
        }
    }

    #[test]
    fn forwarded_address_may_have_a_port_and_brackets() {
        let forwarded = |element: &str| parse_address(element).map(|address| address.to_string());
        for (element, address) in [
            ("192.0.2.1", "192.0.2.1"),
            ("192.0.2.1:5501", "192.0.2.1"),
            ("2001:db8::1", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("[2001:db8::1]:5501", "2001:db8::1"),
        ] {
            assert_eq!(forwarded(element).as_deref(), Some(address), "{element}");
        }
        for malformed in [
            "", "unknown", "_hidden", "192.0.2.1:", "192.0.2.1:x", "192.0.2.1:65536", "192.0.2.1:1:2", "[192.0.2.1]",
            "[2001:db8::1", "2001:db8::1]", "[2001:db8::1]5501", "[2001:db8::1]:", "[[2001:db8::1]]", "\"192.0.2.1\"",
        ] {
            assert_eq!(forwarded(malformed), None, "{malformed}");
        }
    }

    #[test]
    fn network_is_an_address_with_an_optional_prefix() {
        let contains =
            |network: &str, address: &str| Network::parse(network).unwrap().contains(address.parse().unwrap());
        assert!(contains("10.0.0.1", "10.0.0.1") && !contains("10.0.0.1", "10.0.0.2"));
        assert!(contains("10.0.0.0/8", "10.255.0.1") && !contains("10.0.0.0/8", "11.0.0.1"));
        assert!(contains("10.0.0.0/8", "::ffff:10.1.2.3") && contains("0.0.0.0/0", "192.0.2.1"));
        assert!(contains("::ffff:10.0.0.1", "10.0.0.1") && contains("::ffff:10.0.0.0/104", "::ffff:10.1.2.3"));
        assert!(!contains("::ffff:10.0.0.0/104", "11.0.0.1"));
        assert!(contains("2001:db8::/32", "2001:db8:1::1") && !contains("2001:db8::/32", "2001:db9::1"));
        assert!(!contains("0.0.0.0/0", "2001:db8::1"));
        for refused in
            ["", "proxy", "10.0.0.1/33", "10.0.0.1/", "10.0.0.1/-1", "2001:db8::/129", "::ffff:0:0/95", "10.0.0.1:80"]
        {
            assert!(Network::parse(refused).is_err(), "{refused}");
        }
    }
}
