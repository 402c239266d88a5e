//! Code samples of an API request in several languages, for users to copy.

/// Code that sends a request with the API key in the environment variable `KEY`, and prints the response.
pub struct CodeSample {
    pub language: &'static str,
    /// Identifies the language in the ids of HTML elements.
    pub id: &'static str,
    pub parts: Vec<Part>,
}

pub struct Part {
    pub text: String,
    pub role: Role,
}

/// Role of a part. The page's script replaces all but `Text`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Text,
    /// The line with `Prefer`, shown if the user simulates a failure. `{}` stands for the value.
    Prefer,
    /// The body, quoted for a shell.
    ShellBody,
    /// The body as a JSON string.
    JsonBody,
}

/// A request without its API key. `body` is JSON, or empty if there is none.
pub struct SampleRequest<'a> {
    pub method: &'static str,
    pub url: String,
    pub headers: &'a [(&'static str, &'a str)],
    pub body: &'a str,
    /// True for the request of a form that the user has not sent yet.
    pub is_live: bool,
}

impl SampleRequest<'_> {
    pub const fn get(url: String) -> Self {
        Self { method: "GET", url, headers: &[], body: "", is_live: false }
    }

    pub fn samples(&self) -> [CodeSample; 4] {
        [
            CodeSample { language: "curl", id: "curl", parts: self.curl() },
            CodeSample { language: "TypeScript", id: "typescript", parts: self.typescript() },
            CodeSample { language: "Python", id: "python", parts: self.python() },
            CodeSample { language: "Go", id: "go", parts: self.go() },
        ]
    }

    fn curl(&self) -> Vec<Part> {
        let method = if self.method == "POST" && self.body.is_empty() { "-X POST " } else { "" };
        let mut code = format!("curl -i {method}{} \\\n  -H \"Authorization: Bearer $KEY\"", shell_quoted(&self.url));
        for (name, value) in self.headers {
            code += &format!(" \\\n  -H {}", shell_quoted(&format!("{name}: {value}")));
        }
        let mut parts = vec![text(code)];
        parts.extend(self.prefer(" \\\n  -H 'Prefer: {}'"));
        if !self.body.is_empty() {
            parts.extend([text(" \\\n  -d "), self.body(Role::ShellBody)]);
        }
        parts
    }

    fn typescript(&self) -> Vec<Part> {
        let mut code = format!("const response = await fetch({}, {{\n", quoted(&self.url));
        code += &format!("  method: {},\n  headers: {{\n", quoted(self.method));
        code += "    \"Authorization\": `Bearer ${process.env.KEY}`,\n";
        for (name, value) in self.headers {
            code += &format!("    {}: {},\n", quoted(name), quoted(value));
        }
        let mut parts = vec![text(code)];
        parts.extend(self.prefer("    \"Prefer\": \"{}\",\n"));
        parts.push(text("  },\n"));
        if !self.body.is_empty() {
            parts.extend([text("  body: "), self.body(Role::JsonBody), text(",\n")]);
        }
        parts.push(text("});\nconsole.log(response.status, await response.text());"));
        parts
    }

    fn python(&self) -> Vec<Part> {
        let mut code = format!("import os, requests\n\nresponse = requests.request(\n    {},\n", quoted(self.method));
        code += &format!("    {},\n    headers={{\n", quoted(&self.url));
        code += "        \"Authorization\": f\"Bearer {os.environ['KEY']}\",\n";
        for (name, value) in self.headers {
            code += &format!("        {}: {},\n", quoted(name), quoted(value));
        }
        let mut parts = vec![text(code)];
        parts.extend(self.prefer("        \"Prefer\": \"{}\",\n"));
        parts.push(text("    },\n"));
        if !self.body.is_empty() {
            parts.extend([text("    data="), self.body(Role::JsonBody), text(".encode(),\n")]);
        }
        parts.push(text(")\nprint(response.status_code, response.text)"));
        parts
    }

    fn go(&self) -> Vec<Part> {
        let import = if self.body.is_empty() { "" } else { "\n\t\"strings\"" };
        let mut parts = vec![text(format!(
            "package main\n\nimport (\n\t\"fmt\"\n\t\"io\"\n\t\"net/http\"\n\t\"os\"{import}\n)\n\nfunc main() {{\n\
             \trequest, err := http.NewRequest({}, {}, ",
            quoted(self.method),
            quoted(&self.url)
        ))];
        if self.body.is_empty() {
            parts.push(text("nil"));
        } else {
            parts.extend([text("strings.NewReader("), self.body(Role::JsonBody), text(")")]);
        }
        let mut code = ")\n\tif err != nil {\n\t\tpanic(err)\n\t}\n\
                        \trequest.Header.Set(\"Authorization\", \"Bearer \"+os.Getenv(\"KEY\"))\n"
            .to_owned();
        for (name, value) in self.headers {
            code += &format!("\trequest.Header.Set({}, {})\n", quoted(name), quoted(value));
        }
        parts.push(text(code));
        parts.extend(self.prefer("\trequest.Header.Set(\"Prefer\", \"{}\")\n"));
        parts.push(text(
            "\tresponse, err := http.DefaultClient.Do(request)\n\
             \tif err != nil {\n\t\tpanic(err)\n\t}\n\
             \tdefer response.Body.Close()\n\
             \tbody, err := io.ReadAll(response.Body)\n\
             \tfmt.Println(response.StatusCode, string(body), err)\n}",
        ));
        parts
    }

    fn prefer(&self, line: &str) -> Option<Part> {
        self.is_live.then(|| Part { text: line.to_owned(), role: Role::Prefer })
    }

    fn body(&self, role: Role) -> Part {
        let text = if role == Role::ShellBody { shell_quoted(self.body) } else { quoted(self.body) };
        Part { text, role: if self.is_live { role } else { Role::Text } }
    }
}

fn text(text: impl Into<String>) -> Part {
    Part { text: text.into(), role: Role::Text }
}

/// Quotes `text` for TypeScript, Python and Go, which all accept JSON strings.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Quotes `text` for a shell.
fn shell_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_escaped_for_each_language() {
        let body = r#"{"name":"O'Malley"}"#;
        let url = "http://a/v1/pets".to_owned();
        let request = SampleRequest { method: "POST", url, headers: &[], body, is_live: false };
        let codes = request.samples().map(|sample| sample.parts.into_iter().map(|part| part.text).collect::<String>());
        assert!(codes[0].ends_with(r#"-d '{"name":"O'\''Malley"}'"#), "{}", codes[0]);
        for code in &codes[1..] {
            assert!(code.contains(r#""{\"name\":\"O'Malley\"}""#), "{code}");
        }
    }
}
