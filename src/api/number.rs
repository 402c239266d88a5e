//! Numbers in queries and paths.

use percent_encoding::percent_decode_str;

/// Parses an integer in a query or path: ASCII digits with an optional minus sign.
pub fn integer(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok())?
}

/// Parses an id in a path. `None` if it is not an int64.
pub fn id(segment: &str) -> Option<i64> {
    // Digits may be percent-encoded (RFC 3986, section 6.2.2.2), but rarely are.
    integer(segment).or_else(|| integer(&percent_decode_str(segment).decode_utf8().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_digits_with_an_optional_minus_sign() {
        assert_eq!(integer("-9223372036854775808"), Some(i64::MIN));
        assert_eq!(integer("007"), Some(7));
        for other in ["", "-", "+1", " 1", "1 ", "1.0", "1e3", "0x1", "--1", "9223372036854775808", "١"] {
            assert_eq!(integer(other), None, "{other}");
        }
    }
}
