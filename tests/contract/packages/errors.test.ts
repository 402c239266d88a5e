import { startStore } from "petstore";
import { expect, test } from "vitest";

test("errors have the message of the program", async () => {
  await expect(startStore("--unknown")).rejects.toThrow(/unexpected argument '--unknown' found$/);
  await using store = await startStore();
  await expect(store.failingKey("unknown=1")).rejects.toThrow(/has the unknown preference unknown$/);
});
