// The one script of our pages. All but the API reference works without it.

// Buttons that copy.
for (const button of document.querySelectorAll("button[data-copy]")) {
  // Browsers offer the clipboard only where nobody can listen in: over TLS, or on the machine itself.
  button.hidden = !navigator.clipboard;
  button.addEventListener("click", async () => {
    const source = document.getElementById(button.dataset.copy);
    let said = "Copied";
    try {
      await navigator.clipboard.writeText(source.textContent);
    } catch {
      getSelection().selectAllChildren(source);
      said = "Selected";
    }
    button.textContent = said;
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
}

// Updates the request beside a form while its fields change.
const quote = { json: JSON.stringify, shell: (text) => `'${text.replaceAll("'", "'\\''")}'` };

// The value of a field as JSON. A `Number` would be exact up to 2^53 only.
const asJson = (field) => {
  const text = field.value || field.placeholder;
  const isInteger = field.dataset.json === "integer" && /^-?\d+$/.test(text.trim());
  return isInteger ? String(BigInt(text.trim())) : JSON.stringify(text);
};

for (const live of document.querySelectorAll("[data-live]")) {
  const form = document.getElementById(live.dataset.live);
  const show = () => {
    const isSent = (field) => field.dataset.json && (field.type === "radio" ? field.checked : field.value || field.placeholder);
    const body = `{${[...form.elements].filter(isSent).map((field) => `${JSON.stringify(field.name)}:${asJson(field)}`).join(",")}}`;
    const prefer = form.elements.prefer?.value;
    for (const span of live.querySelectorAll("[data-body]")) span.textContent = quote[span.dataset.body](body);
    for (const span of live.querySelectorAll("[data-prefer]")) {
      span.textContent = prefer ? span.dataset.prefer.replace("{}", prefer) : "";
    }
  };
  const follow = () => {
    show();
    // Replaces the last request sent with the next one.
    live.hidden = false;
    if (live.previousElementSibling.matches("div")) live.previousElementSibling.hidden = true;
  };
  form.addEventListener("input", follow);
  form.addEventListener("change", follow);
  // Browsers restore the fields when the user goes back to a page.
  show();
}

// The API reference. Its page loads Swagger UI before this.
if (window.SwaggerUIBundle) {
  // It has a dark mode, but waits for a class to enter it.
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const follow = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
  dark.addEventListener("change", follow);
  follow();

  // The code of a request in the languages of the console. All of them accept JSON strings as literals.
  const text = JSON.stringify;
  const lines = (request, line) => request.get("headers").entrySeq().map(([name, value]) => line(text(name), text(value))).join("");
  const ifBody = (request, code) => (request.get("body") ? code(text(request.get("body"))) : "");
  const typescript = (request) => `const response = await fetch(${text(request.get("url"))}, {
  method: ${text(request.get("method"))},
  headers: {
${lines(request, (name, value) => `    ${name}: ${value},\n`)}  },
${ifBody(request, (body) => `  body: ${body},\n`)}});
console.log(response.status, await response.text());`;
  const python = (request) => `import requests

response = requests.request(
    ${text(request.get("method"))},
    ${text(request.get("url"))},
    headers={
${lines(request, (name, value) => `        ${name}: ${value},\n`)}    },
${ifBody(request, (body) => `    data=${body}.encode(),\n`)})
print(response.status_code, response.text)`;
  const go = (request) => `package main

import (
\t"fmt"
\t"io"
\t"net/http"${ifBody(request, () => '\n\t"strings"')}
)

func main() {
\trequest, err := http.NewRequest(${text(request.get("method"))}, ${text(request.get("url"))}, ${ifBody(request, (body) => `strings.NewReader(${body})`) || "nil"})
\tif err != nil {
\t\tpanic(err)
\t}
${lines(request, (name, value) => `\trequest.Header.Set(${name}, ${value})\n`)}\tresponse, err := http.DefaultClient.Do(request)
\tif err != nil {
\t\tpanic(err)
\t}
\tdefer response.Body.Close()
\tbody, err := io.ReadAll(response.Body)
\tfmt.Println(response.StatusCode, string(body), err)
}`;

  // Makes the tabs of the languages buttons for the keyboard and screen readers. Swagger UI has only a click handler on each.
  const keyboardTabs = (Snippets, { React }) => (props) => {
    const box = React.useRef(null);
    const tabs = (node) => [...node.querySelectorAll(".curl-command .btn")];
    React.useEffect(() => {
      const node = box.current;
      const mark = () => {
        for (const tab of tabs(node)) {
          tab.tabIndex = 0;
          tab.role = "button";
          tab.ariaPressed = tab.classList.contains("active");
        }
      };
      const changes = new MutationObserver(mark);
      changes.observe(node, { subtree: true, childList: true, attributeFilter: ["class"] });
      mark();
      return () => changes.disconnect();
    }, []);
    const onKeyDown = (event) => {
      if (!["Enter", " "].includes(event.key) || !tabs(event.currentTarget).includes(event.target)) return;
      event.preventDefault();
      event.target.click();
    };
    return React.createElement("div", { ref: box, onKeyDown }, React.createElement(Snippets, props));
  };

  // Swagger UI parses JSON to indent it, which changes integers above 2^53. Such a body is shown as it arrived: with a type
  // that Swagger UI does not know. It would offer text/plain for download as HTML.
  const exactNumbers = (Body, { React }) => (props) => {
    let contentType = props.contentType;
    try {
      if (JSON.stringify(JSON.parse(props.content)) !== props.content) contentType = "text/unknown";
    } catch {
      // Not JSON.
    }
    return React.createElement(Body, { ...props, contentType });
  };

  SwaggerUIBundle({
    dom_id: "#swagger-ui",
    // Relative to the page, so that it is found behind a path prefix too.
    url: "openapi.json",
    deepLinking: true,
    tryItOutEnabled: true,
    displayRequestDuration: true,
    requestSnippetsEnabled: true,
    requestSnippets: {
      generators: {
        curl_bash: { title: "curl", syntax: "bash" },
        typescript: { title: "TypeScript", syntax: "javascript" },
        python: { title: "Python", syntax: "python" },
        go: { title: "Go", syntax: "go" },
      },
      languages: ["curl_bash", "typescript", "python", "go"],
      defaultExpanded: true,
    },
    plugins: [
      () => ({
        fn: {
          requestSnippetGenerator_typescript: typescript,
          requestSnippetGenerator_python: python,
          requestSnippetGenerator_go: go,
        },
        wrapComponents: { RequestSnippets: keyboardTabs, responseBody: exactNumbers },
      }),
    ],
    // What is provisional, and the ranges of parameters.
    showExtensions: true,
    showCommonExtensions: true,
    // Each operation shows its own schemas.
    defaultModelsExpandDepth: -1,
    // Each press of Execute is a separate request. A key that the reader has entered stays, to try a replay.
    requestInterceptor: (request) => {
      if (request.method === "POST" && !request.headers["Idempotency-Key"]) {
        // `randomUUID` is missing without TLS.
        const random = crypto.getRandomValues(new Uint8Array(16));
        request.headers["Idempotency-Key"] = Array.from(random, (byte) => byte.toString(16).padStart(2, "0")).join("");
      }
      return request;
    },
    // An API key is forgotten with the page.
    persistAuthorization: false,
    // The badge would send the document's address to a validator elsewhere.
    validatorUrl: null,
  });
}
