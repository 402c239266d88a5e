//! A recorded request as a `curl` command.

use super::sample_request::shell_quoted;
use crate::api::recorder::record::Exchange;
use crate::api::recorder::shown::HIDDEN_BODY;
use crate::redaction::HIDDEN;

/// Headers that are shown, but that curl writes itself, and the id, which must be new.
const OMITTED: [&str; 8] = [
    "accept-encoding", "connection", "content-length", "expect", "host", "transfer-encoding", "user-agent",
    "x-request-id",
];

/// Returns a command that sends the request again, to paste into a shell whose variable `KEY` has an API key. `root` is the
/// address of the listener. `None` if the request is not kept completely.
pub fn command(root: &str, exchange: &Exchange) -> Option<String> {
    let body = exchange.request_body.as_ref()?;
    let is_replaced = body.text.starts_with(HIDDEN_BODY) || body.text.contains(char::REPLACEMENT_CHARACTER);
    if exchange.request_head.is_cut || body.is_cut || is_replaced {
        return None;
    }
    let mut lines = exchange.request_head.text.lines();
    let mut line = lines.next()?.split(' ');
    let (method, target) = (line.next()?, line.next()?);
    if !target.starts_with('/') {
        return None;
    }
    let mut command = match (method, body.text.is_empty()) {
        ("GET", true) | ("POST", false) => "curl -i".to_owned(),
        ("HEAD", _) => "curl --head".to_owned(),
        _ if method.bytes().all(|byte| byte.is_ascii_uppercase()) => format!("curl -i -X {method}"),
        _ => format!("curl -i -X {}", shell_quoted(method)),
    };
    // Otherwise curl expands brackets and braces, and resolves dots.
    for (option, parts) in [(" --globoff", &["[", "]", "{", "}"][..]), (" --path-as-is", &["/."])] {
        if parts.iter().any(|part| target.contains(part)) {
            command.push_str(option);
        }
    }
    command.push_str(&format!(" {}", shell_quoted(&format!("{root}{target}"))));
    command.push_str(" \\\n  -H \"Authorization: Bearer $KEY\"");
    let headers: Vec<_> = lines.filter_map(|line| line.split_once(": ")).collect();
    for (name, value) in &headers {
        if !OMITTED.contains(name) && *value != HIDDEN {
            // To curl, a header without a value is one to omit, and one that ends with a semicolon is empty.
            let header = if value.is_empty() { format!("{name};") } else { format!("{name}: {value}") };
            command.push_str(&format!(" \\\n  -H {}", shell_quoted(&header)));
        }
    }
    if !body.text.is_empty() {
        if !headers.iter().any(|(name, _)| *name == "content-type") {
            command.push_str(" \\\n  -H 'Content-Type:'");
        }
        command.push_str(&format!(" \\\n  --data-raw {}", shell_quoted(&body.text)));
    }
    Some(command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::recorder::record::RedactedText;

    fn exchange(head: &str, body: &str) -> Exchange {
        let text = |text: &str| RedactedText { text: text.into(), is_cut: false };
        Exchange { request_head: text(head), request_body: Some(text(body)), ..Exchange::default() }
    }

    #[test]
    fn request_that_is_not_kept_as_it_was_has_no_command() {
        assert!(command("http://a", &exchange("POST /v1/pets HTTP/1.1", "{}")).is_some());
        assert_eq!(command("http://a", &exchange("POST /v1/pets HTTP/1.1", "{\u{fffd}}")), None);
        assert_eq!(command("http://a", &exchange("POST /v1/pets HTTP/1.1", "[hidden: 3 bytes]")), None);
        assert_eq!(command("http://a", &exchange("OPTIONS * HTTP/1.1", "")), None);
    }

    #[test]
    fn command_has_what_curl_does_not_add() {
        let get = "GET /v1/pets?name=it's HTTP/1.1\nhost: a\naccept: */*\nauthorization: [hidden]\nx-request-id: 7";
        assert_eq!(
            command("http://127.0.0.1:8080", &exchange(get, "")).unwrap(),
            "curl -i 'http://127.0.0.1:8080/v1/pets?name=it'\\''s' \\\n  -H \"Authorization: Bearer $KEY\" \\\n  \
             -H 'accept: */*'"
        );
        let post = "POST /v1/pets HTTP/1.1\ncontent-type: application/json\ncontent-length: 9\nprefer: ";
        assert_eq!(
            command("http://a", &exchange(post, "{\"a\":\"'\"}")).unwrap(),
            "curl -i 'http://a/v1/pets' \\\n  -H \"Authorization: Bearer $KEY\" \\\n  \
             -H 'content-type: application/json' \\\n  -H 'prefer;' \\\n  --data-raw '{\"a\":\"'\\''\"}'"
        );
        let untyped = command("http://a", &exchange("POST /v1/pets HTTP/1.1", "@file")).unwrap();
        assert!(untyped.ends_with("-H 'Content-Type:' \\\n  --data-raw '@file'"), "{untyped}");
        for (line, expected) in [
            ("POST /v1/pets", "curl -i -X POST 'http://a/v1/pets' "),
            ("A$B /v1/pets", "curl -i -X 'A$B' 'http://a/v1/pets' "),
            ("GET /v1/../pets?a={1,2}", "curl -i --globoff --path-as-is 'http://a/v1/../pets?a={1,2}' "),
        ] {
            let command = command("http://a", &exchange(line, "")).unwrap();
            assert!(command.starts_with(expected), "{command}");
        }
        assert!(command("http://a", &exchange("HEAD /v1/pets HTTP/1.1", "")).unwrap().starts_with("curl --head "));
    }

    #[test]
    fn incomplete_request_has_no_command() {
        let mut cut = exchange("GET / HTTP/1.1", "");
        cut.request_head.is_cut = true;
        assert_eq!(command("http://a", &cut), None);
        let mut cut = exchange("POST / HTTP/1.1", "{");
        cut.request_body.as_mut().unwrap().is_cut = true;
        assert_eq!(command("http://a", &cut), None);
        assert_eq!(command("http://a", &Exchange { request_body: None, ..exchange("GET / HTTP/1.1", "") }), None);
    }
}
