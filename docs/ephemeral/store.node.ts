import assert from "node:assert/strict";
import { after, test } from "node:test";
import { startStore } from "petstore";

const store = await startStore();
after(() => store.stop());

test("the store has animals", async () => {
  const response = await fetch(`${store.url}/pets`, { headers: { Authorization: `Bearer ${store.key}` } });
  const [first] = (await response.json()) as { name: string }[];
  assert.equal(first.name, "Rex");
});
