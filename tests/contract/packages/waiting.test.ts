import { appendFileSync } from "node:fs";
import { setTimeout } from "node:timers/promises";
import { store, type Store } from "petstore/vitest";
import { test as base } from "vitest";

const test = base.extend<{ store: Store }>({ store });

test("waits", { timeout: 600_000 }, async ({ store }) => {
  await store.reset();
  appendFileSync("waiting", `${process.pid} ${store.url}\n`);
  await setTimeout(600_000);
});
