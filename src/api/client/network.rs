//! Addresses of trusted proxies.

use std::net::IpAddr;

use crate::domain::Invalid;

/// An IP address, or a network in CIDR notation (RFC 4632): `10.0.0.1`, `10.0.0.0/8`, `2001:db8::/32`.
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
