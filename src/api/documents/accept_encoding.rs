//! The `Accept-Encoding` header, for gzip only (RFC 9110, section 12.5.3).

use axum::http::HeaderMap;
use axum::http::header::ACCEPT_ENCODING;

/// Maximum number of codings that are read. A head has room for 30,000, which take a millisecond.
const CODINGS: usize = 64;

/// Returns whether gzip has at least the weight of no compression. `false` without `Accept-Encoding`, because the client may
/// be unable to decompress.
pub fn accepts_gzip(request: &HeaderMap) -> bool {
    let (mut gzip, mut any, mut identity) = (None, None, None);
    let lines = request.get_all(ACCEPT_ENCODING).iter().filter_map(|line| line.to_str().ok());
    for item in lines.flat_map(|line| line.split(',')).take(CODINGS) {
        let (coding, weight) = item.split_once(';').unwrap_or((item, "q=1"));
        let coding = coding.trim();
        let Some(weight) = parse_weight(weight) else { continue };
        if coding.eq_ignore_ascii_case("gzip") || coding.eq_ignore_ascii_case("x-gzip") {
            gzip = Some(weight);
        } else if coding.eq_ignore_ascii_case("identity") {
            identity = Some(weight);
        } else if coding == "*" {
            any = Some(weight);
        }
    }
    let gzip = gzip.or(any).unwrap_or(0);
    gzip > 0 && gzip >= identity.unwrap_or(0)
}

/// Parses `q=0.5` to thousandths. `None` if it is not a weight (section 12.4.2).
fn parse_weight(text: &str) -> Option<u16> {
    let (name, value) = text.trim().split_once('=')?;
    let (whole, fraction) = value.split_once('.').unwrap_or((value, ""));
    if !name.eq_ignore_ascii_case("q") || fraction.len() > 3 || !fraction.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let thousandths: u16 = format!("{fraction:0<3}").parse().ok()?;
    match whole {
        "0" => Some(thousandths),
        "1" if thousandths == 0 => Some(1_000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted(lines: &[&str]) -> bool {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(ACCEPT_ENCODING, line.parse().unwrap());
        }
        accepts_gzip(&headers)
    }

    #[test]
    fn gzip_is_used_only_if_the_client_accepts_it() {
        for line in [
            "gzip", "GZip", "x-gzip", "*", "br, gzip", "deflate, gzip;q=1.0, *;q=0.5", "gzip;q=0.001", "gzip ; Q=0.5",
            "identity;q=0.5, gzip;q=0.5", "identity;q=0, gzip;q=0.2", "gzip;q=1.000", "gzip;q=1.", ",,gzip,",
        ] {
            assert!(accepted(&[line]), "{line}");
        }
        assert!(accepted(&["br", "gzip"]) && accepted(&["gzip", "br"]));
        for line in [
            "", "br", "identity", "gzipped", "gzip;q=0", "gzip;q=0.000", "gzip;q=0.", "*, gzip;q=0", "*;q=0",
            "identity, gzip;q=0.5", "gzip;q=1.001", "gzip;q=2", "gzip;q=-1", "gzip;q=0.1234", "gzip;q=", "gzip;q",
            "gzip;level=9", "gzip;q=0.5;q=1", "gzip q=1",
        ] {
            assert!(!accepted(&[line]), "{line}");
        }
        assert!(!accepted(&[]));
    }
}
