//! Parsers of values that only settings have.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::api::BaseUrl;
use crate::domain::Invalid;
use crate::domain::time::duration;

/// Takes a folder unless it has what a shell would have removed or replaced. Docker's `--env-file` keeps quotes. An empty
/// database in a new folder would take the place of the one that was meant.
pub fn folder(folder: PathBuf) -> Result<PathBuf, Invalid> {
    let text = folder.as_os_str().as_encoded_bytes();
    let is_quoted = matches!(text, [first @ (b'"' | b'\''), .., last] if first == last);
    match is_quoted || text == b"~" || text.starts_with(b"~/") || text.ends_with(b"\r") {
        true => Err(Invalid("give it without quotes, ~/ and CR: no shell has removed them".into())),
        false => Ok(folder),
    }
}

/// Parses an IP address or `localhost`, and a port. A port alone, as in `:8080`, means all IPv4 addresses. Rejects
/// other host names.
pub fn address(text: &str) -> Result<SocketAddr, Invalid> {
    let address = match text.rsplit_once(':') {
        Some(("", port)) => format!("0.0.0.0:{port}"),
        Some((host, port)) if host.eq_ignore_ascii_case("localhost") => format!("127.0.0.1:{port}"),
        _ => text.to_owned(),
    };
    let why = "an address is an IP address or localhost, and a port, for instance 127.0.0.1:8080, [::1]:8080 or \
               localhost:8080; :8080 means all IPv4 addresses";
    address.parse().map_err(|_| Invalid(why.into()))
}

/// Which backups are kept. The last one always is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The newest ones.
    Newest(usize),
    /// Those that are not older.
    For(Duration),
}

impl Keep {
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let number = text.parse().ok().filter(|number| *number > 0).map(Self::Newest);
        number.or_else(|| duration(text).ok().map(Self::For)).ok_or_else(|| {
            Invalid("it must be a number of backups from 1, or the greatest age of one, for instance 30d".into())
        })
    }
}

/// Parses a duration that may have a fraction of a second.
pub fn database_timeout(text: &str) -> Result<Duration, Invalid> {
    let fraction = || text.strip_suffix('s')?.parse().ok();
    let parsed = duration(text).ok().or_else(|| Duration::try_from_secs_f64(fraction()?).ok());
    let range = Duration::from_millis(500)..=Duration::from_mins(1);
    parsed.filter(|parsed| range.contains(parsed)).ok_or_else(|| Invalid("it must be 0.5s to 60s".into()))
}

pub fn at_least_a_second(text: &str) -> Result<Duration, Invalid> {
    let duration = duration(text)?;
    if duration.is_zero() { Err(Invalid("it must be at least 1s".into())) } else { Ok(duration) }
}

/// Parses an origin of a page, or of an app or an extension, which has a scheme of its own.
pub fn origin(text: &str) -> Result<String, Invalid> {
    let (scheme, host) = text.split_once("://").unwrap_or_default();
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_lowercase())
        && scheme.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'+' | b'-' | b'.'));
    let on_web = format!("{}://{host}", if scheme == "http" { scheme } else { "https" });
    let is_sent =
        BaseUrl::parse(&format!("{on_web}/v1")).is_ok_and(|url| url.origin() == on_web && !host.contains('*'));
    (is_scheme && is_sent).then(|| text.to_owned()).ok_or_else(|| {
        let why =
            "an origin is a scheme, a host and an optional port, without wildcards, for instance https://example.com";
        Invalid(why.into())
    })
}

/// Parses a contact of security.txt, where web addresses must be `https:` (RFC 9116, section 2.5.3).
pub fn contact(text: &str) -> Result<String, Invalid> {
    let is_url =
        ["mailto:", "tel:", "https://"].iter().any(|scheme| text.len() > scheme.len() && text.starts_with(scheme));
    let well_formed = is_url && text.bytes().all(|byte| byte.is_ascii_graphic());
    well_formed.then(|| text.to_owned()).ok_or_else(|| {
        Invalid("a contact is a URL with mailto:, tel: or https:, for instance mailto:security@example.com".into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_has_nothing_that_a_shell_removes() {
        for (text, is_taken) in [
            ("a", true),
            ("~a", true),
            ("a'b\"", true),
            ("'a\"", true),
            ("'", true),
            ("a/~/b", true),
            ("'a'", false),
            ("\"a\"", false),
            ("~/a", false),
            ("~", false),
            ("a\r", false),
        ] {
            assert_eq!(folder(text.into()).is_ok(), is_taken, "{text:?}");
        }
    }

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

    #[test]
    fn timeouts_of_the_database_may_have_a_fraction() {
        for (text, milliseconds) in [("0.5s", 500), ("1.8s", 1_800), ("7s", 7_000), ("1m", 60_000)] {
            assert_eq!(database_timeout(text), Ok(Duration::from_millis(milliseconds)));
        }
        for refused in ["", "2", "0.49s", "60.1s", "2m", "1.5m", "-1s", "NaNs", "infs"] {
            assert!(database_timeout(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn origins_are_those_that_browsers_send() {
        for sent in ["https://example.com", "http://[::1]:3000", "capacitor://localhost", "com.example.app://abcdef"] {
            assert_eq!(origin(sent), Ok(sent.to_owned()));
        }
        for never_sent in [
            "*", "null", "example.com", "https://example.com/", "https://example.com:443", "https://*.example.com",
            "HTTP://a", "app://", "1app://a", "a_b://a",
        ] {
            assert!(origin(never_sent).is_err(), "{never_sent}");
        }
    }
}
