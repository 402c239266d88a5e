//! A request that pages show in several languages (`templates/console/samples.html`), for users to copy.

/// A request without its API key, which the code takes from the environment variable `KEY`.
pub struct SampleRequest {
    pub method: &'static str,
    pub url: String,
    pub headers: Vec<(&'static str, String)>,
    /// JSON, or empty if there is none.
    pub body: String,
    /// True for the request of a form that the user has not sent yet. The page's script fills in `Prefer` and the body.
    pub is_live: bool,
}

impl SampleRequest {
    pub const fn get(url: String) -> Self {
        Self { method: "GET", url, headers: Vec::new(), body: String::new(), is_live: false }
    }
}

/// Quotes `text` for a shell.
pub fn shell_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::json_string;

    #[test]
    fn quotes_are_escaped() {
        assert_eq!(shell_quoted(r#"{"name":"O'Malley"}"#), r#"'{"name":"O'\''Malley"}'"#);
        assert_eq!(json_string(r#"{"name":"O'Malley"}"#), r#""{\"name\":\"O'Malley\"}""#);
    }
}
