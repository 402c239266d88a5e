import { expect, inject, test } from "vitest";

test("the store has animals", async () => {
  const { storeUrl, key } = inject("store");
  const response = await fetch(`${storeUrl}/pets`, { headers: { Authorization: `Bearer ${key}` } });
  const [first] = (await response.json()) as { name: string }[];
  expect(first.name).toBe("Rex");
});
