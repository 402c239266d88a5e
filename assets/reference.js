// The API reference: Scalar on our document.

// JavaScript rounds integers above 2^53. Such a bound is left out, because the format `int64` implies it.
const exact = (_, value) => (Number.isInteger(value) && !Number.isSafeInteger(value) ? undefined : value);
// Relative to the page, so that it is found behind a path prefix too.
const content = JSON.parse(await (await fetch("openapi.json")).text(), exact);

const operations = Object.values(content.paths).flatMap(Object.values);
// The page calls this service, so it shows its addresses instead of variables.
for (const server of [content, ...Object.values(content.paths), ...operations].flatMap((part) => part.servers ?? [])) {
  server.url = server.url.replace(/{(\w+)}/g, (_, name) => server.variables[name].default);
  delete server.variables;
}
// Otherwise Scalar looks for the document's server among the operation's own, and sends requests to this page.
for (const operation of operations) {
  if (operation.servers) operation["x-scalar-selected-server"] = operation.servers[0].url;
}

// Each press of Send is a separate request. A key that the reader has entered stays, to try a replay.
const send = (input, init) => {
  const request = new Request(input, init);
  if (request.method === "POST" && !request.headers.has("Idempotency-Key")) {
    // `randomUUID` is missing without TLS.
    const random = crypto.getRandomValues(new Uint8Array(16));
    request.headers.set("Idempotency-Key", Array.from(random, (byte) => byte.toString(16).padStart(2, "0")).join(""));
  }
  // Without a key, so that the response says that the key is missing.
  if (request.headers.get("Authorization") === "Bearer") request.headers.delete("Authorization");
  return fetch(request);
};

// Repairs for the keyboard and screen readers: elements without a name, and with a role or reference that is wrong.
const each = (selector, repair) => document.querySelectorAll(selector).forEach(repair);
const repair = () => {
  each('button[class*="copy-button"]', (button) => {
    button.ariaLabel ??= `Copy ${button.querySelector("span span")?.textContent ?? ""}`;
    button.removeAttribute("aria-controls");
  });
  each(".icons-only a", (link) => (link.ariaLabel ??= link.textContent));
  each("button[role=none]", (button) => button.removeAttribute("role"));
  each(".code-input-lite__editor[role=combobox]", (field) => (field.role = "textbox"));
  each(".cm-content", (code) => (code.ariaLabel ??= "Body"));
  each('.cm-scroller:has([contenteditable="false"])', (code) => (code.tabIndex = 0));
};
new MutationObserver(repair).observe(document.body, { childList: true, subtree: true });

// Scalar reads the colour scheme only once.
const dark = matchMedia("(prefers-color-scheme: dark)");
dark.addEventListener("change", () => {
  document.body.classList.toggle("dark-mode", dark.matches);
  document.body.classList.toggle("light-mode", !dark.matches);
});

document.getElementById("content").replaceChildren();
Scalar.createApiReference("#content", {
  content,
  customFetch: send,
  // An API key is forgotten with the page.
  persistAuth: false,
  // Nothing is sent to other hosts.
  telemetry: false,
  withDefaultFonts: false,
  agent: { disabled: true },
  mcp: { disabled: true },
  hideClientButton: true,
  showDeveloperTools: "never",
  documentDownloadType: "none",
  // The page follows the system's colour scheme.
  hideDarkModeToggle: true,
  // An operation fits on a screen. It shows its own schemas.
  expandAllParameters: false,
  hideModels: true,
  defaultOpenAllTags: true,
});
