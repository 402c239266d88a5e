import { createPet, listPets, placeOrder, sendMessage } from "./petstore";
import { client } from "./petstore/client.gen";

const { STORE_URL, MESSAGES_URL, STORE_API_KEY } = process.env;
client.setConfig({
  baseUrl: STORE_URL,
  auth: STORE_API_KEY,
  parseAs: "json",
  // For the whole response, with its body.
  fetch: (request) => fetch(request, { signal: AbortSignal.timeout(10_000) }),
});

function fail(...message: unknown[]): never {
  console.error(...message);
  process.exit(1);
}

const seconds = (retryAfter: string) =>
  /^\d+$/.test(retryAfter) ? Number(retryAfter) : Math.max(0, (Date.parse(retryAfter) - Date.now()) / 1000);

// Returns a success, or a conflict that will not pass.
async function retry<T>(call: () => Promise<{ data?: T; error?: unknown; response?: Response }>) {
  for (let wait = 1; ; wait *= 2) {
    const { data, error, response } = await call();
    const retryAfter = response?.headers.get("Retry-After");
    // A success without data is one that was cut off, or is not JSON.
    if (response?.ok ? data !== undefined : response?.status === 409 && !retryAfter) return { data: data!, response: response! };
    if (response?.status === 401) fail("STORE_API_KEY is not valid: create another key");
    const isFinal = response && !response.ok && response.status < 500 && !retryAfter;
    if (isFinal || wait > 8) fail("request failed:", error);
    await new Promise((resolve) => setTimeout(resolve, (retryAfter ? seconds(retryAfter) : wait) * 1000));
  }
}

async function main() {
  // The key is the same for every attempt, so the animal is added once.
  const key = () => ({ "Idempotency-Key": crypto.randomUUID() });
  const adding = { headers: key(), body: { name: "Rex", categoryId: 3 } };
  const added = await retry(() => createPet(adding));
  console.log("added", added.data.name);

  const ordering = { headers: key(), body: { petId: added.data.id } };
  const ordered = await retry(() => placeOrder(ordering));
  console.log(ordered.response.ok ? "ordered Rex" : "Rex is gone");

  const sending = { baseUrl: MESSAGES_URL, headers: key(), body: { message: "Hello" } };
  const message = await retry(() => sendMessage(sending));
  console.log("message", message.data.status);

  for (let after: number | undefined, next: string | undefined = ""; next !== undefined; ) {
    const query = { after };
    const { data, response } = await retry(() => listPets({ query }));
    data.forEach((pet) => console.log(pet.id, pet.name));
    next = response.headers.get("Link")?.match(/<([^>]+)>; rel="next"/)?.[1];
    after = next ? Number(new URL(next, response.url).searchParams.get("after")) : undefined;
  }
}

main();
