//! The `Prefer` header (RFC 7240).

use axum::http::{HeaderMap, HeaderName};

pub const PREFER: HeaderName = HeaderName::from_static("prefer");

/// Returns all `Prefer` lines of a request as one.
pub fn line(headers: &HeaderMap) -> String {
    let lines = headers.get_all(PREFER).iter().map(|line| String::from_utf8_lossy(line.as_bytes()));
    lines.collect::<Vec<_>>().join(",")
}

/// Parses a `Prefer` line: names and values in their order, and whether they have parameters. Of repeated ones, the
/// caller takes the first.
pub fn parse(line: &str) -> impl Iterator<Item = (String, String, bool)> {
    let preferences = split(line, ',').map(|preference| {
        let mut parts = split(preference, ';');
        let (name, value) = name_and_value(parts.next().unwrap_or_default());
        (name, value, parts.any(|parameter| !parameter.trim().is_empty()))
    });
    preferences.filter(|(name, ..)| !name.is_empty())
}

/// Returns the name, which is case-insensitive, in lower case. A missing value is an empty one.
fn name_and_value(preference: &str) -> (String, String) {
    let (name, value) = preference.split_once('=').unwrap_or((preference, ""));
    let value = value.trim();
    let value = match value.strip_prefix('"').and_then(|value| value.strip_suffix('"')) {
        Some(quoted) => quoted.replace('\\', ""),
        None => value.to_owned(),
    };
    (name.trim().to_ascii_lowercase(), value)
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
        parse(&line(&lines.collect())).find(|(given, ..)| *given == name).map(|(_, value, _)| value)
    }

    #[test]
    fn preferences_are_parsed_as_rfc_7240_says() {
        for (lines, expected) in [
            (&["code=503"][..], Some("503")),
            (&["CODE = 503"], Some("503")),
            (&["respond-async, code=503, wait=10"], Some("503")),
            (&["respond-async", "code=503"], Some("503")),
            (&["code=503; a=b;c"], Some("503")),
            (&[r"a\, code=503"], Some("503")),
            (&[r#"code="503""#], Some("503")),
            (&[r#"code="5\03""#], Some("503")),
            (&[r#"a="x, code=500; \" y", code=503"#], Some("503")),
            (&["a;code=500, code=503"], Some("503")),
            (&["code=503, code=500", "code=429"], Some("503")),
            (&["code=, code=503"], Some("")),
            (&[r#"a=", code=503"#], None),
            (&["code"], Some("")),
            (&["", ",,;=;,"], None),
            (&["xcode=503", "code503"], None),
        ] {
            assert_eq!(value(lines, "code").as_deref(), expected, "{lines:?}");
        }
    }
}
