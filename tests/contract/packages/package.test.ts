import { startStore } from "petstore";
import { expect, test, vi } from "vitest";

test("errors have the message of the program", async () => {
  await expect(startStore("--unknown")).rejects.toThrow(/unexpected argument '--unknown' found$/);
  await using store = await startStore();
  await expect(store.failingKey("unknown=1")).rejects.toThrow(/has the unknown preference unknown$/);
});

test("a stub of fetch does not affect the store", async () => {
  vi.stubGlobal("fetch", () => Promise.reject(new Error("stub")));
  await using store = await startStore();
  await store.reset();
  expect(await store.requests()).toEqual([]);
});

test("the store has the keys that fail", async () => {
  await using store = await startStore("--prefer", "flaky=code=503");
  expect(store.keys.flaky).not.toBe(store.key);
  expect(store.customerEmail && store.pid).toBeTruthy();
});
