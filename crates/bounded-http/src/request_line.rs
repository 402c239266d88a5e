//! Detects fragments in request targets, which the parser removes before anything else can see them.

use std::sync::atomic::{AtomicU8, Ordering};

/// Extension of a request whose target contains a fragment. RFC 9112, section 3.2 has no such form, so a proxy could read
/// the target differently. The parser removes fragments, so the connection looks for them.
#[derive(Clone, Copy, Debug)]
pub struct HasFragment;

/// Reads along with the parser until the end of each request line.
///
/// RFC 9112, section 3.2 has no form of target with a fragment, so a proxy may read `/pets#x` differently. A request
/// whose line arrives together with the previous request (pipelining) is not examined: finding it needs a parser.
#[derive(Debug, Default)]
pub struct RequestLine(AtomicU8);

/// Before the first character. Servers skip empty lines there (section 2.2).
const START: u8 = 0;
const INSIDE: u8 = 1;
/// At the end, or taken.
const DONE: u8 = 2;
/// After the first `#`.
const FRAGMENT: u8 = 3;

impl RequestLine {
    /// Begins a new line: the connection was idle and receives the first bytes of a request.
    #[inline]
    pub fn begin(&self) {
        self.0.store(START, Ordering::Relaxed);
    }

    /// Reads on.
    #[inline]
    pub fn received(&self, bytes: &[u8]) {
        let mut state = self.0.load(Ordering::Relaxed);
        let mut rest = bytes;
        while state < DONE
            && let Some((byte, after)) = rest.split_first()
        {
            state = match (state, byte) {
                (START, b'\r' | b'\n') => START,
                (INSIDE, b'\n') => DONE,
                (_, b'#') => FRAGMENT,
                _ => INSIDE,
            };
            rest = if state == START { after } else { from_next_mark(after) };
        }
        self.0.store(state, Ordering::Relaxed);
    }

    /// Returns whether the target of the request just parsed contains a fragment.
    #[inline]
    pub fn take_fragment(&self) -> bool {
        self.0.swap(DONE, Ordering::Relaxed) == FRAGMENT
    }
}

/// Skips the bytes inside a line that do not change the state. Compares blocks, because a block takes as long as a byte.
#[inline]
fn from_next_mark(bytes: &[u8]) -> &[u8] {
    let is_mark = |byte: &u8| matches!(byte, b'#' | b'\n');
    let is_plain = |block: &&[u8; 16]| !block.iter().fold(false, |found, byte| found | is_mark(byte));
    let plain = bytes.as_chunks().0.iter().take_while(is_plain).count();
    let rest = &bytes[16 * plain..];
    &rest[rest.iter().position(is_mark).unwrap_or(rest.len())..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has_fragment(reads: &[&str]) -> bool {
        let line = RequestLine::default();
        line.begin();
        for read in reads {
            line.received(read.as_bytes());
        }
        line.take_fragment()
    }

    #[test]
    fn fragments_are_found_in_the_request_line_alone() {
        assert!(has_fragment(&["GET /v1/pets#x HTTP/1.1\r\nhost: a\r\n\r\n"]));
        assert!(has_fragment(&["\r\n\r\nGET /v1/pets?a=1#", "x HTTP/1.1\r", "\nhost: a\r\n\r\n"]));
        assert!(has_fragment(&["GET #x HTTP/1.1\nhost: a\n\n"]));
        assert!(!has_fragment(&["GET /v1/pets?a=%23 HTTP/1.1\r\nhost: a\r\nx: #\r\n\r\n#"]));
        assert!(!has_fragment(&["GET /v1/pets HTTP/1.1\r\n", "x: #\r\n\r\n"]));
        assert!(!has_fragment(&["\r\nGET /v1/pets HTTP/1.1\r\nx: #\r\n\r\n"]));
    }

    #[test]
    fn a_fragment_counts_for_one_request() {
        let line = RequestLine::default();
        line.begin();
        line.received(b"GET /#x HTTP/1.1\r\n\r\n");
        assert!(line.take_fragment());
        assert!(!line.take_fragment());
        line.received(b"GET /#x HTTP/1.1\r\n\r\n");
        assert!(!line.take_fragment(), "no new line began");
    }
}
