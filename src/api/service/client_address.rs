//! The network address of a client, also behind proxies.

use std::net::IpAddr;

use axum::http::header::FORWARDED;
use axum::http::{HeaderMap, HeaderValue};

use super::forwarded::{parse_address, parse_forwarded};
use crate::config::Network;
use crate::domain::{Actor, Email, Timestamp};
use crate::redaction::redacted;

const X_FORWARDED_FOR: &str = "x-forwarded-for";

/// The peer that a request came from, and the request's id. An extension of requests for pages.
#[derive(Clone, Debug)]
pub struct Arrival {
    pub peer: IpAddr,
    pub request_id: HeaderValue,
}

impl Arrival {
    /// Returns the actor of a change that an account requests. A key in the request's id, which the client chose, is hidden.
    pub fn actor(&self, account: Email, client_address: IpAddr, at: Timestamp) -> Actor {
        let request_id = redacted(self.request_id.as_bytes());
        Actor { at, account: Some(account), client_address: Some(client_address), request_id: Some(request_id) }
    }
}

/// Returns the address of the client. If `peer` is a trusted proxy, that is the last address in `X-Forwarded-For` that is
/// not a trusted proxy itself. Addresses before it are ignored, because the client may have forged them.
///
/// `Forwarded` counts only without `X-Forwarded-For`, because most proxies write `X-Forwarded-For` and pass on a client's
/// `Forwarded`.
pub fn client_address(peer: IpAddr, headers: &HeaderMap, trusted: &[Network]) -> IpAddr {
    let is_trusted = |address: IpAddr| trusted.iter().any(|network| network.contains(address));
    if !is_trusted(peer) {
        return peer;
    }
    // As bytes, because a client's non-ASCII byte must not remove what the proxy appended to the line.
    let lines = |name| headers.get_all(name).iter().rev().map(HeaderValue::as_bytes);
    let text = |bytes| str::from_utf8(bytes).ok();
    let addresses: Vec<Option<IpAddr>> = match headers.contains_key(X_FORWARDED_FOR) {
        true => lines(X_FORWARDED_FOR)
            .flat_map(|line| line.rsplit(|byte| *byte == b','))
            .map(|element| text(element.trim_ascii()).and_then(parse_address))
            .collect(),
        // A malformed line counts as one unknown address.
        false => lines(FORWARDED.as_str())
            .flat_map(|line| text(line).and_then(parse_forwarded).unwrap_or_else(|| vec![None]).into_iter().rev())
            .collect(),
    };
    let mut client = peer;
    for address in addresses {
        match address {
            Some(address) if is_trusted(client) => client = address,
            _ => break,
        }
    }
    client
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
    fn other_bytes_of_a_client_hide_no_forwarded_address() {
        let trusted = [Network::parse("10.0.0.0/8").unwrap()];
        for (name, lines, client) in [
            (X_FORWARDED_FOR, &[&b"\xff, 198.51.100.1"[..]][..], "198.51.100.1"),
            (X_FORWARDED_FOR, &["203.0.113.9, é, 198.51.100.1".as_bytes()], "198.51.100.1"),
            (X_FORWARDED_FOR, &[b"\xff", b"198.51.100.1, 10.0.0.2"], "198.51.100.1"),
            (X_FORWARDED_FOR, &[b"203.0.113.9", b"\xff"], "10.0.0.1"),
            (X_FORWARDED_FOR, &[b"203.0.113.9,\xff"], "10.0.0.1"),
            ("forwarded", &["for=203.0.113.9;by=\"é\", for=198.51.100.1".as_bytes()], "198.51.100.1"),
            ("forwarded", &[b"\xff", b"for=198.51.100.1"], "198.51.100.1"),
            ("forwarded", &[b"for=203.0.113.9", b"\xff"], "10.0.0.1"),
            ("forwarded", &[b"for=203.0.113.9", b"for=\"\xff\", for=198.51.100.1"], "10.0.0.1"),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(name, HeaderValue::from_bytes(line).unwrap());
            }
            let found = client_address("10.0.0.1".parse().unwrap(), &headers, &trusted);
            assert_eq!(found.to_string(), client, "{name}: {lines:?}");
        }
    }

    #[test]
    fn forwarded_counts_only_without_x_forwarded_for() {
        let trusted = [Network::parse("10.0.0.0/8").unwrap()];
        for (peer, lines, client) in [
            ("192.0.2.1", &["for=198.51.100.1"][..], "192.0.2.1"),
            ("10.0.0.1", &["for=198.51.100.1"], "198.51.100.1"),
            ("10.0.0.1", &[r#"for="[2001:db8::1]:4711";proto=https"#], "2001:db8::1"),
            ("10.0.0.1", &[r#"for=203.0.113.9, for=198.51.100.1, for="10.0.0.2:80""#], "198.51.100.1"),
            ("10.0.0.1", &["for=203.0.113.9", "for=198.51.100.1", "for=10.0.0.2"], "198.51.100.1"),
            ("10.0.0.1", &["for=203.0.113.9, for=unknown"], "10.0.0.1"),
            ("10.0.0.1", &["for=203.0.113.9, for=_hidden, for=10.0.0.2"], "10.0.0.2"),
            ("10.0.0.1", &["for=203.0.113.9, proto=https"], "10.0.0.1"),
            ("10.0.0.1", &["for=203.0.113.9;x=\"", "for=198.51.100.1"], "198.51.100.1"),
            ("10.0.0.1", &["for=203.0.113.9;x=\"", "for=10.0.0.2"], "10.0.0.2"),
            ("10.0.0.1", &["for=203.0.113.9;x=\", for=198.51.100.1"], "10.0.0.1"),
            ("10.0.0.1", &[""], "10.0.0.1"),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(FORWARDED, line.parse().unwrap());
            }
            let found = |headers: &HeaderMap| client_address(peer.parse().unwrap(), headers, &trusted).to_string();
            assert_eq!(found(&headers), client, "{lines:?}");
            let without = if peer == "10.0.0.1" { "192.0.2.7" } else { peer };
            headers.append(X_FORWARDED_FOR, "192.0.2.7".parse().unwrap());
            assert_eq!(found(&headers), without, "{lines:?}");
            headers.insert(X_FORWARDED_FOR, "nonsense".parse().unwrap());
            assert_eq!(found(&headers), peer, "{lines:?}");
        }
    }
}
