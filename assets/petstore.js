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

// The API reference. Its page loads Swagger UI before this.
if (window.SwaggerUIBundle) {
  // It has a dark mode, but waits for a class to enter it.
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const follow = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
  dark.addEventListener("change", follow);
  follow();

  SwaggerUIBundle({
    dom_id: "#swagger-ui",
    // Relative to the page, so that it is found behind a path prefix too.
    url: "openapi.json",
    deepLinking: true,
    tryItOutEnabled: true,
    displayRequestDuration: true,
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
