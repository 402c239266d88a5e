//! Replaces secrets in recorded requests: credentials, cookies, passwords, and all that looks like an API key. Replaces keys
//! in log lines and spans.

use std::borrow::Cow;
use std::ops::Range;

use axum::http::HeaderName;
use axum::http::header::{AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION, SET_COOKIE};

/// The text that replaces a secret.
pub const HIDDEN: &str = "[hidden]";

/// The beginnings of keys, in lower case.
const KEYS: [&[u8]; 2] = [b"pet_live_", b"pet_test_"];

/// The beginnings of names whose values are secrets, in lower case.
const NAMES: [&[u8]; 5] = [b"password", b"passwd", b"passphrase", b"authorization", b"cookie"];

/// Maximum length of a name, and number of names and URLs in a text, whose rest is then hidden. They limit the time that a
/// text full of them takes.
const LONGEST_NAME: usize = 64;
const MOST_NAMES: usize = 100;

/// Number of times that a text may be escaped: an address within another's query is encoded twice. A text that is escaped
/// more often is hidden.
const LEVELS: usize = 3;

/// Returns whether the value of a header is always a secret.
pub fn is_secret(name: &HeaderName) -> bool {
    const PARTS: [&str; 5] = ["passw", "passphrase", "secret", "token", "api-key"];
    [AUTHORIZATION, PROXY_AUTHORIZATION, COOKIE, SET_COOKIE].contains(name)
        || PARTS.iter().any(|part| name.as_str().contains(part))
}

/// Replaces the secrets in `text`, even if their characters are percent-encoded or escaped as in JSON. A secret may be cut
/// off at the end of `text`. Bytes that are not UTF-8, and control characters that a terminal could obey, become `�`.
pub fn redacted(text: &[u8]) -> String {
    let characters = Characters::of(text);
    if characters.is_escaped() {
        return HIDDEN.to_owned();
    }
    let kept = characters.kept(text, false);
    let is_obeyed = |character: char| character.is_control() && !matches!(character, '\n' | '\t');
    String::from_utf8_lossy(&kept).replace(is_obeyed, "\u{fffd}")
}

/// Replaces the keys in `text` like [`redacted`], and nothing else. Costs little if there is nothing that looks like one.
pub fn without_keys(text: &[u8]) -> Cow<'_, [u8]> {
    let may_begin_key = |part: &[u8]| matches!(part[0], b'%' | b'\\') || part.eq_ignore_ascii_case(b"pet_");
    if !text.windows(b"pet_".len()).any(may_begin_key) {
        return text.into();
    }
    Characters::of(text).kept(text, true).into()
}

/// A text without its escapes.
struct Characters {
    /// ASCII characters in lower case, and other bytes as they are.
    values: Vec<u8>,
    /// The positions in the text at which each begins, and the end of the text.
    starts: Vec<usize>,
}

impl Characters {
    fn of(text: &[u8]) -> Self {
        let (mut values, mut starts) = (text.to_vec(), (0..=text.len()).collect::<Vec<_>>());
        for _ in 0..LEVELS {
            let (mut at, mut length) = (0, 0);
            while at < values.len() {
                let (value, width) = unescaped(&values[at..]);
                (values[length], starts[length]) = (value, starts[at]);
                (at, length) = (at + width, length + 1);
            }
            values.truncate(length);
            starts.truncate(length);
            starts.push(text.len());
        }
        values.make_ascii_lowercase();
        Self { values, starts }
    }

    fn is_escaped(&self) -> bool {
        (0..self.values.len()).any(|at| unescaped(&self.values[at..]).1 > 1)
    }

    /// Returns `text` with its secrets replaced.
    fn kept(&self, text: &[u8], only_keys: bool) -> Vec<u8> {
        let hidden = self.hidden(only_keys);
        let mut kept = Vec::with_capacity(text.len());
        for (at, is_hidden) in hidden.iter().enumerate() {
            if !is_hidden {
                kept.extend_from_slice(&text[self.starts[at]..self.starts[at + 1]]);
            } else if at == 0 || !hidden[at - 1] {
                kept.extend_from_slice(HIDDEN.as_bytes());
            }
        }
        kept
    }

    /// Returns for each character whether it belongs to a secret. Secrets may overlap.
    fn hidden(&self, only_keys: bool) -> Vec<bool> {
        let mut hidden = vec![false; self.values.len()];
        let mut names = 0;
        for at in 0..hidden.len() {
            let starts_with = |prefix: &[u8]| self.values[at..].starts_with(prefix);
            let secret = match self.values[at] {
                // The rest of a key that is hidden is hidden.
                b'p' if KEYS.iter().any(|key| starts_with(key)) && hidden.get(at + KEYS[0].len()) == Some(&false) => {
                    Some(self.run(at + KEYS[0].len(), |next| is_in_key(self.values[next])))
                }
                _ if only_keys => None,
                b'p' | b'a' | b'c' if NAMES.iter().any(|name| starts_with(name)) => {
                    names += 1;
                    self.value_after(at)
                }
                b':' if starts_with(b"://") => {
                    names += 1;
                    self.url_user(at + "://".len())
                }
                _ => None,
            };
            let secret = if names > MOST_NAMES { Some(at..hidden.len()) } else { secret };
            hidden[secret.unwrap_or_default()].fill(true);
            if names > MOST_NAMES {
                break;
            }
        }
        hidden
    }

    /// Finds the value after a name at `at`: `password=x`, `password[]=x`, `"password": "x"`.
    fn value_after(&self, at: usize) -> Option<Range<usize>> {
        let is_in_name =
            |next: usize| next < at + LONGEST_NAME && (is_in_key(self.values[next]) || self.is_one_of(next, b"-.[]"));
        let is_around = |next: usize| self.values[next].is_ascii_whitespace() || self.is_one_of(next, b"\\\"'[]");
        let separator = self.run(self.run(at, is_in_name).end, is_around).end;
        let is_field = match self.values.get(separator)? {
            b':' => true,
            b'=' => false,
            _ => return None,
        };
        let blank = self.run(separator + 1, |next| self.values[next].is_ascii_whitespace());
        let escapes = self.run(blank.end, |next| self.values[next] == b'\\');
        let value = escapes.end;
        Some(match *self.values.get(value)? {
            b'"' | b'\'' => self.quoted(value, escapes.len()),
            // The end of a list or object of secrets is hard to find.
            b'[' | b'{' => value..self.values.len(),
            _ if is_field => self.run(value, |next| self.values[next] != b'\n'),
            _ => self.run(value, |next| !self.ends_parameter(next)),
        })
    }

    /// Finds what follows a quotation mark, up to one that is written in the same way, after as many backslashes.
    fn quoted(&self, open: usize, escapes: usize) -> Range<usize> {
        let backslashes =
            |at: usize| self.values[open + 1..at].iter().rev().take_while(|value| **value == b'\\').count();
        let closes = |at: usize| {
            self.values[at] == self.values[open] && self.width(at) == self.width(open) && backslashes(at) == escapes
        };
        self.run(open + 1, |next| !closes(next))
    }

    /// Returns whether the value of a parameter in a query or form ends here. Escaped characters belong to it.
    fn ends_parameter(&self, at: usize) -> bool {
        self.width(at) == 1 && (self.values[at].is_ascii_whitespace() || self.values[at] == b'&')
    }

    /// Finds the user and password in `://user:password@host`.
    fn url_user(&self, begin: usize) -> Option<Range<usize>> {
        let is_end = |next: usize| self.width(next) == 1 && self.is_one_of(next, b"/?#\"'");
        let authority = self.run(begin, |next| !is_end(next) && !self.values[next].is_ascii_whitespace());
        let length = self.values[authority].iter().rposition(|value| *value == b'@')?;
        Some(begin..begin + length)
    }

    /// Returns the range of characters from `begin` on that belong together.
    fn run(&self, begin: usize, belongs: impl Fn(usize) -> bool) -> Range<usize> {
        let begin = begin.min(self.values.len());
        begin..begin + (begin..self.values.len()).take_while(|next| belongs(*next)).count()
    }

    fn is_one_of(&self, at: usize, values: &[u8]) -> bool {
        values.contains(&self.values[at])
    }

    fn width(&self, at: usize) -> usize {
        self.starts[at + 1] - self.starts[at]
    }
}

/// Base62, and the underscore, so that a key after a part of another is hidden.
const fn is_in_key(value: u8) -> bool {
    value.is_ascii_alphanumeric() || value == b'_'
}

/// Returns the first character and its length: `%5F` is `_`, as is `\u005F`.
fn unescaped(text: &[u8]) -> (u8, usize) {
    let hex = |digits: &[u8]| u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok();
    let escape = match text {
        [b'%', high, low, ..] => hex(&[*high, *low]).map(|value| (value, 3)),
        [b'\\', b'u', b'0', b'0', high, low, ..] => hex(&[*high, *low]).map(|value| (value, 6)),
        _ => None,
    };
    escape.unwrap_or((text[0], 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "pet_test_0123456789abcdefghijABCDEFGHIJ01234567";

    #[test]
    fn keys_are_hidden_however_they_are_written() {
        let percent = |text: &str| text.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
        let json = KEY.bytes().map(|byte| format!("\\u00{byte:02X}")).collect::<String>();
        let encoded = percent(KEY);
        for key in [
            KEY,
            &KEY.replace("test", "live"),
            &KEY.to_uppercase(),
            &KEY.replace('_', "%5F"),
            &KEY.replace('_', "%255f"),
            &encoded,
            &percent(&encoded),
            &json,
            &KEY[..20],
            &encoded[..39],
        ] {
            for (before, after) in [("", ""), ("/v1/pets?key=", "&x=1"), ("{\"key\":\"", "\"}"), ("x%", " ü\u{fffd}")]
            {
                let shown = redacted(format!("{before}{key}{after}").as_bytes());
                assert!(shown.starts_with(before) && shown.ends_with(&format!("{HIDDEN}{after}")), "{shown}");
                let prefix = shown.len() - before.len() - after.len() - HIDDEN.len();
                assert_eq!(&shown[before.len()..before.len() + prefix], &key[..prefix], "only the prefix is shown");
            }
        }
        assert_eq!(redacted(format!("{KEY},{KEY}").as_bytes()), "pet_test_[hidden],pet_test_[hidden]");
    }

    #[test]
    fn log_line_loses_only_keys() {
        let line = |key: &str| format!(r#"{{"path":"/{key}","cause":"password=x \"{key}\" %25252525 a://b:c@d"}}"#);
        for (key, shown) in [
            (KEY.to_owned(), "pet_test_[hidden]".to_owned()),
            (KEY.to_uppercase(), "PET_TEST_[hidden]".into()),
            (KEY.replace("t_t", "t%5Ft"), "pet%5Ftest_[hidden]".into()),
            ("Pet".into(), "Pet".into()),
        ] {
            assert_eq!(String::from_utf8_lossy(&without_keys(line(&key).as_bytes())), line(&shown));
        }
        assert!(matches!(without_keys(b"{\"path\":\"/v1/pets\"}"), Cow::Borrowed(_)));
    }

    #[test]
    fn rest_of_a_text_full_of_urls_is_hidden() {
        let text = ":%2f%2f".repeat(4_300);
        assert_eq!(redacted(text.as_bytes()), ":%2f%2f".repeat(MOST_NAMES) + HIDDEN);
        assert_eq!(redacted(b"a://ada:secret@b c://d"), "a://[hidden]@b c://d");
    }

    #[test]
    fn text_that_is_escaped_more_often_than_it_is_unescaped_is_hidden() {
        let (mut text, mut shown) = ("a=1&password=%s".to_owned(), Vec::new());
        for _ in 0..=LEVELS {
            text = text.replace('%', "%25").replace('w', "%77");
            shown.push(redacted(text.as_bytes()));
        }
        assert!(shown[..LEVELS].iter().all(|shown| shown.starts_with("a=1&pass")), "{shown:?}");
        assert_eq!(shown[LEVELS], HIDDEN);
    }

    #[test]
    fn key_cut_off_anywhere_is_hidden() {
        for text in [KEY.to_owned(), KEY.replace('_', "%5F"), KEY.replace('9', "%39")] {
            for end in 0..=text.len() {
                let shown = redacted(&text.as_bytes()[..end]);
                assert!(!shown.contains("01"), "{shown}");
            }
        }
    }

    #[test]
    fn passwords_are_hidden_by_the_names_of_their_fields() {
        for (text, expected) in [
            ("a=1&password=x%26y&b=2", "a=1&password=[hidden]&b=2"),
            ("GET /v1/pets?new_Password=secret HTTP/1.1", "GET /v1/pets?new_Password=[hidden] HTTP/1.1"),
            ("pass%77ord%3Dsecret", "pass%77ord%3D[hidden]"),
            (r#"{"password":"secret","b":2}"#, r#"{"password":"[hidden]","b":2}"#),
            (r#"{"passwd" : 'secret' }"#, r#"{"passwd" : '[hidden]' }"#),
            (r#"{"password":"a\"b\\","b":2}"#, r#"{"password":"[hidden]"b":2}"#),
            (r#"{"password":"a\"b","b":2}"#, r#"{"password":"[hidden]","b":2}"#),
            (r#"{"password":"a%22b\u0022c"}"#, r#"{"password":"[hidden]"}"#),
            (r#""{\"password\":\"a\\\"b\",\"b\":2}""#, r#""{\"password\":\"[hidden]",\"b\":2}""#),
            (r#"{"passphrase":123,"b":2}"#, r#"{"passphrase":[hidden]"#),
            ("Password: two words\nb", "Password: [hidden]\nb"),
            ("curl -H 'Authorization: Basic YWRh' /", "curl -H 'Authorization: [hidden]"),
            (r#"{"cookie":"a=b"}"#, r#"{"cookie":"[hidden]"}"#),
            (r#"{"password":["a","b"]}"#, r#"{"password":[hidden]"#),
            (r#"{"password":"secr"#, r#"{"password":"[hidden]"#),
            ("user[password]=secret", "user[password]=[hidden]"),
            (r"password\[\]=secret", r"password\[\]=[hidden]"),
            ("password[]=secret&password[new][0]=secret", "password[]=[hidden]&password[new][0]=[hidden]"),
            ("pet_test_apassword=secret", "pet_test_[hidden]=[hidden]"),
            ("password=cookie:a b", "password=[hidden]"),
            ("https://pet_test_a:b@shop.example", "https://[hidden]@shop.example"),
            ("referer: https://ada:se@cret@shop.example/a@b:c", "referer: https://[hidden]@shop.example/a@b:c"),
        ] {
            assert_eq!(redacted(text.as_bytes()), expected);
        }
    }

    #[test]
    fn key_among_other_secrets_is_hidden() {
        let pieces = [
            "pet_test_", "pet_live_a", "password", "=", ":", "\"", "\\", "'", "%", "%2", "%25", "\\u00", "\\u0022",
            "&", " ", "\n", "://", "@", "/", "cookie: ", "authorization", "{", "[", "a", "_", "-", "ü",
        ];
        let encoded: String = KEY.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let mut random = 1_u64;
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            pieces[(random >> 33) as usize % pieces.len()]
        };
        for _ in 0..20_000 {
            let mut around = || (0..6).map(|_| next()).collect::<String>();
            let text = format!("{}{KEY}{}{encoded}{}", around(), around(), around());
            let shown = redacted(text.as_bytes());
            assert!(!shown.contains("0123") && !shown.contains("%30%31%32"), "{text}: {shown}");
        }
    }

    #[test]
    fn rest_of_a_text_full_of_names_is_hidden() {
        let expected = "password=[hidden]&".repeat(MOST_NAMES) + HIDDEN;
        assert_eq!(redacted("password=x&".repeat(1_000).as_bytes()), expected);
    }

    #[test]
    fn other_text_is_kept() {
        for text in [
            r#"{"name":"O'Malley & Söhne %","categoryId":3}"#,
            "Keys begin with pet_live_ or pet_test_.",
            "password",
            "a password: ",
            "?password=&limit=3",
            "http://127.0.0.1:8080/v1/pets?a=@:",
            "%",
            "%2",
            "%25%2",
            r"\u00",
            "line\n\ttabbed",
        ] {
            assert_eq!(redacted(text.as_bytes()), text);
        }
        assert_eq!(redacted(b"\x1b[201~\xff\0\r"), "\u{fffd}[201~\u{fffd}\u{fffd}\u{fffd}");
    }

    #[test]
    fn credentials_are_secret_headers() {
        let secret = |name: &str| is_secret(&HeaderName::try_from(name).unwrap());
        for name in ["Authorization", "Proxy-Authorization", "Cookie", "Set-Cookie", "X-Api-Key", "X-Password"] {
            assert!(secret(name), "{name}");
        }
        assert!(!secret("Idempotency-Key") && !secret("Content-Type"));
    }
}
