import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import type { TestProject } from "vitest/node";

declare module "vitest" {
  interface ProvidedContext {
    store: { storeUrl: string; messagesUrl: string; key: string; customerKey: string };
  }
}

export default async function setup(project: TestProject) {
  const store = spawn("petstore", ["ephemeral"], { stdio: ["pipe", "pipe", "inherit"] });
  const [line] = await once(createInterface(store.stdout), "line");
  project.provide("store", JSON.parse(line));
  return async () => {
    store.stdin.end();
    await once(store, "exit");
  };
}
