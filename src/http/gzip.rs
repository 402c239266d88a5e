//! The gzip format (RFC 1952) around miniz_oxide's compression.

use miniz_oxide::deflate::compress_to_vec;
use miniz_oxide::inflate::decompress_to_vec;

/// Without a name, time or comment; from an unknown operating system.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];

/// Sizes of the checksum and the length at the end.
const TRAILER: usize = 8;

/// zlib's level of speed over size: half a millisecond for a scrape of the metrics.
const LEVEL: u8 = 1;

pub fn compress(plain: &[u8]) -> Vec<u8> {
    // The length is modulo 2^32.
    let trailer = [crc32fast::hash(plain).to_le_bytes(), (plain.len() as u32).to_le_bytes()];
    [&HEADER[..], &compress_to_vec(plain, LEVEL), trailer.as_flattened()].concat()
}

/// Decompresses a file that `compress` or `gzip -n` wrote. `None` if it is not one.
pub fn decompress(compressed: &[u8]) -> Option<Vec<u8>> {
    let flags = *compressed.get(3)?;
    let deflated = compressed.get(HEADER.len()..compressed.len().checked_sub(TRAILER)?)?;
    let plain = decompress_to_vec(deflated).ok()?;
    let checksum = compressed[compressed.len() - TRAILER..].first_chunk()?;
    (flags == 0 && crc32fast::hash(&plain) == u32::from_le_bytes(*checksum)).then_some(plain)
}
