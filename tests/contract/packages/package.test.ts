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

test("a reset takes the options of the command", async () => {
  await using store = await startStore();
  await expect(store.reset("--pets", "package.json")).rejects.toThrow(/correct them\nwarning: line 1: /);
  await store.reset("--empty");
});

test("the store has the keys that fail", async () => {
  await using store = await startStore("--prefer", "flaky=code=503");
  expect(store.keys.flaky).not.toBe(store.key);
  expect(store.customerEmail && store.pid).toBeTruthy();
});

test("an interrupt of the tests does not reach the store", async () => {
  await using store = await startStore();
  // Fails unless the store leads a process group of its own.
  process.kill(-store.pid, 0);
});

test("a store that has ended is an error", async () => {
  const store = await startStore();
  process.kill(store.pid);
  const error = () => store.requests().catch(({ message }) => message);
  await expect.poll(error, { timeout: 60_000 }).toBe("the store has ended");
  for (const call of [store.requests(), store.reset(), store.failingKey("code=503")]) {
    await expect(call).rejects.toThrow("the store has ended");
  }
});
