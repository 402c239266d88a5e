//! Listen addresses.

use std::net::SocketAddr;

use crate::domain::Invalid;

/// Parses an IP address or `localhost`, and a port. A port alone, as in `:8080`, means all IPv4 addresses. Rejects
/// other host names.
pub fn address(text: &str) -> Result<SocketAddr, Invalid> {
    let address = match text.rsplit_once(':') {
        Some(("", port)) => format!("0.0.0.0:{port}"),
        Some((host, port)) if host.eq_ignore_ascii_case("localhost") => format!("127.0.0.1:{port}"),
        _ => text.to_owned(),
    };
    address.parse().map_err(|_| {
        Invalid(
            "an address is an IP address or localhost, and a port, for instance 127.0.0.1:8080, [::1]:8080 or \
             localhost:8080; :8080 means all IPv4 addresses"
                .into(),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_an_ip_address_or_localhost_and_a_port() {
        for (text, parsed) in [
            ("127.0.0.1:8080", "127.0.0.1:8080"),
            ("[::]:0", "[::]:0"),
            (":8080", "0.0.0.0:8080"),
            ("localhost:8080", "127.0.0.1:8080"),
            ("LOCALHOST:1", "127.0.0.1:1"),
        ] {
            assert_eq!(address(text), Ok(parsed.parse().unwrap()), "{text}");
        }
        for refused in ["", ":", "8080", "localhost", "localhost:", ":65536", "::8080", "example.com:80", ":-1", "*:80"]
        {
            assert!(address(refused).is_err(), "{refused}");
        }
    }
}
