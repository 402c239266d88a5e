//! The network address of a client, also behind proxies.

use std::net::{IpAddr, SocketAddr};

use axum::http::HeaderMap;

use crate::config::Network;

/// The network address that a request came from. An extension of requests for pages.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub IpAddr);

/// Returns the address of the client. If `peer` is a trusted proxy, that is the last address in `X-Forwarded-For` that is
/// not a trusted proxy itself. Addresses before it are ignored, because the client may have forged them.
pub fn client_address(peer: IpAddr, headers: &HeaderMap, trusted: &[Network]) -> IpAddr {
    let is_trusted = |address: IpAddr| trusted.iter().any(|network| network.contains(address));
    let lines: Vec<_> = headers.get_all("x-forwarded-for").iter().filter_map(|line| line.to_str().ok()).collect();
    let mut client = peer;
    for named in lines.iter().rev().flat_map(|line| line.rsplit(',')) {
        match forwarded_address(named.trim()) {
            Some(address) if is_trusted(client) => client = address,
            _ => break,
        }
    }
    client
}

/// Parses one element of `X-Forwarded-For`. The header has no standard: some proxies add the port, and some put IPv6
/// addresses in brackets.
fn forwarded_address(element: &str) -> Option<IpAddr> {
    let bracketed = || element.strip_prefix('[')?.strip_suffix(']')?.parse().ok().map(IpAddr::V6);
    let with_port = || element.parse().ok().map(|address: SocketAddr| address.ip());
    element.parse().ok().or_else(with_port).or_else(bracketed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwarded_address_counts_only_from_a_trusted_proxy() {
        let trusted = [Network::parse("10.0.0.0/8").unwrap()];
        let client = |peer: &str, lines: &[&str]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append("x-forwarded-for", line.parse().unwrap());
            }
            client_address(peer.parse().unwrap(), &headers, &trusted).to_string()
        };
        assert_eq!(client("192.0.2.1", &["198.51.100.1"]), "192.0.2.1", "anybody can write that");
        assert_eq!(client("10.0.0.1", &["198.51.100.1"]), "198.51.100.1");
        assert_eq!(client("10.0.0.1", &["203.0.113.9, 198.51.100.1, 10.0.0.2"]), "198.51.100.1");
        assert_eq!(client("10.0.0.1", &["203.0.113.9", "198.51.100.1"]), "198.51.100.1");
        assert_eq!(client("10.0.0.1", &["203.0.113.9, nonsense"]), "10.0.0.1");
        assert_eq!(client("10.0.0.1", &[]), "10.0.0.1");
    }

    #[test]
    fn forwarded_address_may_have_a_port_and_brackets() {
        let forwarded = |element: &str| forwarded_address(element).map(|address| address.to_string());
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
            "",
            "unknown",
            "_hidden",
            "192.0.2.1:",
            "192.0.2.1:x",
            "192.0.2.1:65536",
            "192.0.2.1:1:2",
            "[192.0.2.1]",
            "[2001:db8::1",
            "2001:db8::1]",
            "[2001:db8::1]5501",
            "[2001:db8::1]:",
            "[[2001:db8::1]]",
            "\"192.0.2.1\"",
        ] {
            assert_eq!(forwarded(malformed), None, "{malformed}");
        }
    }
}
