import { store, type Store } from "petstore/vitest";
import { expect, test as base } from "vitest";

const test = base.extend<{ store: Store }>({ store });

const listAnimals = (store: Store, key = store.key) =>
  fetch(`${store.url}/pets`, { headers: { Authorization: `Bearer ${key}` } });

test("the store has animals", async ({ store }) => {
  const [first] = (await (await listAnimals(store)).json()) as { name: string }[];
  expect(first.name).toBe("Rex");
});

test("every second request fails", async ({ store }) => {
  const key = await store.failingKey("code=503, every=2");
  expect((await listAnimals(store, key)).status).toBe(200);
  expect((await listAnimals(store, key)).status).toBe(503);
});
