import createClient from "openapi-fetch";
import type { paths } from "./petstore.js";

const { STORE_URL, MESSAGES_URL, STORE_API_KEY } = process.env;
const headers = { Authorization: `Bearer ${STORE_API_KEY}` };
// For the whole response, with its body.
const withTimeout = (request: Request) => fetch(request, { signal: AbortSignal.timeout(10_000) });
const store = createClient<paths>({ baseUrl: STORE_URL, headers, fetch: withTimeout });
const messages = createClient<paths>({ baseUrl: MESSAGES_URL, headers, fetch: withTimeout });

function fail(...message: unknown[]): never {
  console.error(...message);
  process.exit(1);
}

const seconds = (retryAfter: string) =>
  /^\d+$/.test(retryAfter) ? Number(retryAfter) : Math.max(0, (Date.parse(retryAfter) - Date.now()) / 1000);

// Returns a success, or a conflict that will not pass.
async function retry<T>(call: () => Promise<{ data?: T; error?: unknown; response: Response }>) {
  for (let wait = 1; ; wait *= 2) {
    // The promise is rejected after a lost connection, a timeout, and a body that is not JSON.
    const { data, error, response } = await call().catch((error) => ({ data: undefined, error, response: undefined }));
    const retryAfter = response?.headers.get("Retry-After");
    if (response?.ok || (response?.status === 409 && !retryAfter)) return { data: data!, response };
    if (response?.status === 401) fail("STORE_API_KEY is not valid: create another key");
    if ((response && response.status < 500 && !retryAfter) || wait > 8) fail("request failed:", error);
    await new Promise((resolve) => setTimeout(resolve, (retryAfter ? seconds(retryAfter) : wait) * 1000));
  }
}

// The key is the same for every attempt, so the animal is added once.
const key = () => ({ header: { "Idempotency-Key": crypto.randomUUID() } });
const adding = { params: key(), body: { name: "Rex", categoryId: 3 } };
const added = await retry(() => store.POST("/pets", adding));
console.log("added", added.data.name);

const ordering = { params: key(), body: { petId: added.data.id } };
const ordered = await retry(() => store.POST("/store/orders", ordering));
console.log(ordered.response.ok ? "ordered Rex" : "Rex is gone");

const sending = { params: key(), body: { message: "Hello" } };
const message = await retry(() => messages.POST("/messages", sending));
console.log("message", message.data.status);

for (let after: number | undefined, next: string | undefined = ""; next !== undefined; ) {
  const query = { after };
  const { data, response } = await retry(() => store.GET("/pets", { params: { query } }));
  data.forEach((pet) => console.log(pet.id, pet.name));
  next = response.headers.get("Link")?.match(/<([^>]+)>; rel="next"/)?.[1];
  after = next ? Number(new URL(next, response.url).searchParams.get("after")) : undefined;
}
