import { store, type Store } from "petstore/vitest";
import { expect, test as base } from "vitest";

const test = base.extend<{ store: Store }>({ store });

const listAnimals = (store: Store, key = store.key) =>
  fetch(`${store.url}/pets`, { headers: { Authorization: `Bearer ${key}` } });

test("the store has animals", async ({ store }) => {
  const [first] = (await (await listAnimals(store)).json()) as { name: string }[];
  expect(first.name).toBe("Rex");
});

test("the first request fails", async ({ store }) => {
  await store.reset();
  const key = await store.failingKey("code=503, first=1");
  await listAnimals(store, key);
  await listAnimals(store, key);
  expect((await store.requests()).map(({ status }) => status)).toEqual([503, 200]);
});
