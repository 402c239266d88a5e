import createClient from "openapi-fetch";
import type { paths } from "./petstore.js";

const headers = { Authorization: `Bearer ${process.env.STORE_API_KEY}` };
const store = createClient<paths>({ baseUrl: process.env.STORE_URL, headers });

async function retry<T>(call: () => Promise<{ data?: T; error?: unknown; response: Response }>) {
  for (let wait = 1; ; wait *= 2) {
    const { data, error, response } = await call().catch((error) => ({ data: undefined, error, response: undefined }));
    if (response?.ok) return { data: data!, response };
    const retryAfter = response?.headers.get("Retry-After");
    const isFinal = response && response.status < 500 && !retryAfter;
    if (isFinal || wait > 8) throw new Error("request failed", { cause: error });
    await new Promise((resolve) => setTimeout(resolve, Number(retryAfter ?? wait) * 1000));
  }
}

// The key is the same for every attempt, so the animal is added once.
const header = { "Idempotency-Key": crypto.randomUUID() };
const added = await retry(() => store.POST("/pets", { params: { header }, body: { name: "Rex", categoryId: 3 } }));
console.log("added", added.data.name);

for (let after: number | undefined, next: string | undefined = ""; next !== undefined; ) {
  const query = { after };
  const { data, response } = await retry(() => store.GET("/pets", { params: { query } }));
  data.forEach((pet) => console.log(pet.id, pet.name));
  next = response.headers.get("Link")?.match(/<([^>]+)>; rel="next"/)?.[1];
  after = next ? Number(new URL(next, response.url).searchParams.get("after")) : undefined;
}
