import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { startStore } from "petstore";
import { expect, test } from "vitest";

test("dropped requests are an error", async () => {
  const journal = createServer((_, response) => void response.setHeader("Requests-Dropped", "1").end("[]"));
  await once(journal.listen(0, "127.0.0.1"), "listening");
  const store = Object.assign(await startStore(), {
    opsUrl: `http://127.0.0.1:${(journal.address() as AddressInfo).port}`,
  });
  await expect(store.requests()).rejects.toThrow("dropped 1 request");
  await store.stop();
  journal.close();
});
