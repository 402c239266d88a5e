//! The `Forwarded` header of proxies (RFC 7239).

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

/// Parses a line of the header. Returns the address in each element's `for`, or `None` for an element whose proxy hides the
/// address or does not know it.
///
/// Returns `None` if any part of the line is malformed. Otherwise, an open quote from the client could swallow what the
/// proxy appended.
pub fn parse_forwarded(line: &str) -> Option<Vec<Option<IpAddr>>> {
    let mut addresses = Vec::new();
    // State of the current element: whether it has a pair, and the value of `for`.
    let (mut has_pair, mut client) = (false, None);
    let mut rest = line;
    loop {
        rest = skip_space(rest);
        if !rest.is_empty() && !rest.starts_with([',', ';']) {
            let (name, value, after) = pair(rest)?;
            if name.eq_ignore_ascii_case("for") && client.replace(address(&value)).is_some() {
                return None;
            }
            (has_pair, rest) = (true, skip_space(after));
        }
        let separator = rest.chars().next();
        if separator != Some(';') && has_pair {
            addresses.push(client.take().flatten());
            has_pair = false;
        }
        match separator {
            None => return Some(addresses),
            Some(',' | ';') => rest = &rest[1..],
            Some(_) => return None,
        }
    }
}

fn skip_space(text: &str) -> &str {
    text.trim_start_matches([' ', '\t'])
}

/// Splits off `name=value`. Returns the name, the value without quotes, and the rest.
fn pair(text: &str) -> Option<(&str, Cow<'_, str>, &str)> {
    let (name, rest) = token(text)?;
    let rest = rest.strip_prefix('=')?;
    let Some(quoted) = rest.strip_prefix('"') else {
        return token(rest).map(|(value, rest)| (name, value.into(), rest));
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    loop {
        match characters.next()? {
            (end, '"') => return Some((name, value.into(), &quoted[end + 1..])),
            (_, '\\') => value.push(characters.next()?.1),
            (_, character) => value.push(character),
        }
    }
}

/// Splits off a token of at least one character (RFC 9110, section 5.6.2).
fn token(text: &str) -> Option<(&str, &str)> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let end = text.bytes().position(|byte| !is_part(byte)).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

/// Parses a node (section 6): an address and an optional port. The port may be a name like `_p1`, which hides the number.
fn address(node: &str) -> Option<IpAddr> {
    parse_address(node.rsplit_once(":_").map_or(node, |(address, _)| address))
}

/// Parses an address. `X-Forwarded-For` has no standard: some proxies add the port, and some put IPv6 addresses in
/// brackets.
pub fn parse_address(text: &str) -> Option<IpAddr> {
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok().map(IpAddr::V6);
    let with_port = || text.parse().ok().map(|address: SocketAddr| address.ip());
    text.parse().ok().or_else(with_port).or_else(bracketed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Option<Vec<String>> {
        let shown = |address: Option<IpAddr>| address.map_or_else(|| "-".to_owned(), |address| address.to_string());
        parse_forwarded(line).map(|addresses| addresses.into_iter().map(shown).collect())
    }

    #[test]
    fn addresses_are_those_in_for() {
        for (line, addresses) in [
            ("", &[][..]),
            (" , ,", &[]),
            ("for=192.0.2.60", &["192.0.2.60"]),
            ("For=192.0.2.60;proto=http;by=203.0.113.43", &["192.0.2.60"]),
            ("proto=http ; FOR=192.0.2.60", &["192.0.2.60"]),
            (r#"for="192.0.2.60""#, &["192.0.2.60"]),
            (r#"for="192.0.2.60:4711""#, &["192.0.2.60"]),
            (r#"for="192.0.2.60:_p0""#, &["192.0.2.60"]),
            (r#"for="[2001:db8::17]""#, &["2001:db8::17"]),
            (r#"for="[2001:db8::17]:4711";by="[::1]""#, &["2001:db8::17"]),
            (r#"for="[2001:db8::17]:_obf.1""#, &["2001:db8::17"]),
            (r#"for="\1\9\2.0.2.60""#, &["192.0.2.60"]),
            ("for=192.0.2.43, for=198.51.100.17", &["192.0.2.43", "198.51.100.17"]),
            ("for=192.0.2.43,,;for=198.51.100.17;", &["192.0.2.43", "198.51.100.17"]),
            (r#"for=_gazonk, for="_SEVKISEK:_x", for=unknown, proto=https"#, &["-", "-", "-", "-"]),
            (r#"for=192.0.2.1;x=", for=9.9.9.9", for=192.0.2.2"#, &["192.0.2.1", "192.0.2.2"]),
            ("for=192.0.2.256, for=localhost", &["-", "-"]),
        ] {
            let addresses: Vec<_> = addresses.iter().map(|&address| address.to_owned()).collect();
            assert_eq!(parsed(line), Some(addresses), "{line}");
        }
    }

    #[test]
    fn malformed_line_has_no_addresses() {
        for line in [
            "192.0.2.60",
            "for",
            "for=",
            "=192.0.2.60",
            "for =192.0.2.60",
            "for= 192.0.2.60",
            "for=192.0.2.60:4711",
            "for=[2001:db8::17]",
            "for=192.0.2.60 for=192.0.2.61",
            "for=192.0.2.60;for=192.0.2.61",
            r#"for="192.0.2.60"#,
            r#"for="192.0.2.60\"#,
            r#"for="192.0.2.60"x"#,
            r#"for=192.0.2.1;x=", for=192.0.2.60"#,
            r#"for="", for=192.0.2.60", for=192.0.2.61"#,
            "for=192.0.2.60/24",
            "f(or)=192.0.2.60",
        ] {
            assert_eq!(parsed(line), None, "{line}");
        }
    }

    #[test]
    fn no_prefix_changes_the_appended_address() {
        let parts = ["for", "=", "\"", "\\", ";", ",", " ", "[", "]", ":", "_x", "9.9.9.9", "by=a", "for=9.9.9.9", "é"];
        let mut random: u64 = 0x2545_f491_4f6c_dd1d;
        let (mut counted, mut ignored) = (0, 0);
        for _ in 0..100_000 {
            let mut prefix = String::new();
            for _ in 0..random % 12 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                prefix += parts[(random % parts.len() as u64) as usize];
            }
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            for appended in ["for=192.0.2.60", r#"for="[2001:db8::17]:4711";proto=https"#] {
                match parsed(&format!("{prefix}, {appended}")) {
                    Some(addresses) => {
                        assert!(appended.contains(addresses.last().unwrap()), "{prefix}: {addresses:?}");
                        counted += 1;
                    }
                    None => ignored += 1,
                }
            }
        }
        assert!(counted > 1_000 && ignored > 1_000, "{counted} counted, {ignored} ignored");
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
}
