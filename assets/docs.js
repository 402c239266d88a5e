// Swagger UI has a dark mode, but waits for a class to enter it.
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
  // An API key is forgotten with the page.
  persistAuthorization: false,
  // The badge would send the document's address to a validator elsewhere.
  validatorUrl: null,
});
