//! The `Prefer` header (RFC 7240).

use axum::http::{HeaderMap, HeaderName};

pub const PREFER: HeaderName = HeaderName::from_static("prefer");
pub const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// The preferences of a request: names and values, without parameters.
#[derive(Debug)]
pub struct Preferences(Vec<(String, String)>);

impl Preferences {
    /// Parses all `Prefer` lines.
    pub fn of(headers: &HeaderMap) -> Self {
        let lines = headers.get_all(PREFER).iter().filter_map(|line| line.to_str().ok());
        let preferences = lines.flat_map(|line| split(line, ','));
        Self(preferences.filter_map(|preference| parse(split(preference, ';').next()?)).collect())
    }

    /// Returns the value of a preference. Names are case-insensitive. The first one counts if a preference is repeated.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(given, _)| given.eq_ignore_ascii_case(name)).map(|(_, value)| &**value)
    }
}

fn parse(preference: &str) -> Option<(String, String)> {
    let (name, value) = preference.split_once('=')?;
    let value = value.trim();
    let value = match value.strip_prefix('"').and_then(|value| value.strip_suffix('"')) {
        Some(quoted) => quoted.replace('\\', ""),
        None => value.to_owned(),
    };
    Some((name.trim().to_owned(), value))
}

/// Splits `text` at each `separator` outside of quoted strings.
fn split(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    text.split(move |character| {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            _ => return character == separator && !is_quoted,
        }
        false
    })
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn value(lines: &[&'static str], name: &str) -> Option<String> {
        let lines = lines.iter().map(|line| (PREFER, HeaderValue::from_static(line)));
        Preferences::of(&lines.collect()).value(name).map(str::to_owned)
    }

    #[test]
    fn preferences_are_parsed_as_rfc_7240_says() {
        for (lines, expected) in [
            (&["code=503"][..], Some("503")),
            (&["CODE = 503"], Some("503")),
            (&["respond-async, code=503, wait=10"], Some("503")),
            (&["respond-async", "code=503"], Some("503")),
            (&["code=503; a=b;c"], Some("503")),
            (&[r#"code="503""#], Some("503")),
            (&[r#"code="5\03""#], Some("503")),
            (&[r#"a="x, code=500; \" y", code=503"#], Some("503")),
            (&["a;code=500, code=503"], Some("503")),
            (&["code=503, code=500", "code=429"], Some("503")),
            (&["code=, code=503"], Some("")),
            (&[r#"a=", code=503"#], None),
            (&["code"], None),
            (&["", ",,;=;,"], None),
            (&["xcode=503", "code503"], None),
        ] {
            assert_eq!(value(lines, "code").as_deref(), expected, "{lines:?}");
        }
    }
}
