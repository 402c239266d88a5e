//! Code samples of an API request in several languages, for users to copy.

/// Code that sends a request with the API key in the environment variable `KEY`, and prints the response.
pub struct CodeSample {
    pub language: &'static str,
    /// Identifies the language in the ids of HTML elements.
    pub id: &'static str,
    pub code: String,
}

/// A request without its API key. `body` is JSON, or empty if there is none.
pub struct SampleRequest<'a> {
    pub method: &'static str,
    pub url: String,
    pub headers: &'a [(&'static str, &'a str)],
    pub body: &'a str,
}

impl SampleRequest<'_> {
    pub fn samples(&self) -> [CodeSample; 4] {
        [
            CodeSample { language: "curl", id: "curl", code: self.curl() },
            CodeSample { language: "TypeScript", id: "typescript", code: self.typescript() },
            CodeSample { language: "Python", id: "python", code: self.python() },
            CodeSample { language: "Go", id: "go", code: self.go() },
        ]
    }

    fn curl(&self) -> String {
        let method = if self.method == "POST" && self.body.is_empty() { "-X POST " } else { "" };
        let mut code = format!("curl -i {method}{} \\\n  -H \"Authorization: Bearer $KEY\"", shell_quoted(&self.url));
        for (name, value) in self.headers {
            code += &format!(" \\\n  -H {}", shell_quoted(&format!("{name}: {value}")));
        }
        if !self.body.is_empty() {
            code += &format!(" \\\n  -d {}", shell_quoted(self.body));
        }
        code
    }

    fn typescript(&self) -> String {
        let mut code = format!("const response = await fetch({}, {{\n", quoted(&self.url));
        code += &format!("  method: {},\n  headers: {{\n", quoted(self.method));
        code += "    \"Authorization\": `Bearer ${process.env.KEY}`,\n";
        for (name, value) in self.headers {
            code += &format!("    {}: {},\n", quoted(name), quoted(value));
        }
        code += "  },\n";
        if !self.body.is_empty() {
            code += &format!("  body: {},\n", quoted(self.body));
        }
        code + "});\nconsole.log(response.status, await response.text());"
    }

    fn python(&self) -> String {
        let mut code = format!("import os, requests\n\nresponse = requests.request(\n    {},\n", quoted(self.method));
        code += &format!("    {},\n    headers={{\n", quoted(&self.url));
        code += "        \"Authorization\": f\"Bearer {os.environ['KEY']}\",\n";
        for (name, value) in self.headers {
            code += &format!("        {}: {},\n", quoted(name), quoted(value));
        }
        code += "    },\n";
        if !self.body.is_empty() {
            code += &format!("    data={}.encode(),\n", quoted(self.body));
        }
        code + ")\nprint(response.status_code, response.text)"
    }

    fn go(&self) -> String {
        let (import, body) = match self.body {
            "" => ("", "nil".to_owned()),
            body => ("\n\t\"strings\"", format!("strings.NewReader({})", quoted(body))),
        };
        let mut code = format!(
            "package main\n\nimport (\n\t\"fmt\"\n\t\"io\"\n\t\"net/http\"\n\t\"os\"{import}\n)\n\nfunc main() {{\n\
             \trequest, err := http.NewRequest({}, {}, {body})\n\
             \tif err != nil {{\n\t\tpanic(err)\n\t}}\n\
             \trequest.Header.Set(\"Authorization\", \"Bearer \"+os.Getenv(\"KEY\"))\n",
            quoted(self.method),
            quoted(&self.url)
        );
        for (name, value) in self.headers {
            code += &format!("\trequest.Header.Set({}, {})\n", quoted(name), quoted(value));
        }
        code + "\tresponse, err := http.DefaultClient.Do(request)\n\
                \tif err != nil {\n\t\tpanic(err)\n\t}\n\
                \tdefer response.Body.Close()\n\
                \tbody, err := io.ReadAll(response.Body)\n\
                \tfmt.Println(response.StatusCode, string(body), err)\n}"
    }
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
        let request = SampleRequest { method: "POST", url: "http://a/v1/pets".to_owned(), headers: &[], body };
        let samples = request.samples();
        assert!(samples[0].code.ends_with(r#"-d '{"name":"O'\''Malley"}'"#), "{}", samples[0].code);
        for sample in &samples[1..] {
            assert!(sample.code.contains(r#""{\"name\":\"O'Malley\"}""#), "{}", sample.code);
        }
    }
}
