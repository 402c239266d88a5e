"use strict";

const { execFile, spawn } = require("node:child_process");
const { once } = require("node:events");
const { createInterface } = require("node:readline");
const { promisify } = require("node:util");
const { program } = require("./program.js");

class Store {
  #child;

  constructor(child, { storeUrl, ...ready }) {
    this.#child = child;
    Object.assign(this, { url: storeUrl, ...ready });
  }

  failingKey(preferences) {
    return this.#run("key", "create", "--account", this.email, "--name", "failing", "--prefer", preferences);
  }

  async requests(key = this.key) {
    const response = await this.#journal("GET", key);
    const dropped = Number(response.headers.get("Requests-Dropped"));
    if (dropped) throw new Error(`the store has dropped ${dropped} requests: reset it more often`);
    return response.json();
  }

  async reset() {
    await this.#run("reset", "--yes");
    for (const key of [this.key, this.customerKey]) await this.#journal("DELETE", key);
  }

  async stop() {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    this.#child.ref();
    this.#child.kill();
    await once(this.#child, "exit");
  }

  [Symbol.asyncDispose]() {
    return this.stop();
  }

  async #journal(method, key) {
    const response = await fetch(`${this.opsUrl}/requests`, { method, headers: { Authorization: `Bearer ${key}` } });
    if (!response.ok) throw new Error(`${method} /requests: ${response.status} ${await response.text()}`);
    return response;
  }

  async #run(...arguments_) {
    // Settings in the environment may name another database, which takes precedence over the folder.
    const settings = Object.entries(process.env).filter(([name]) => !name.startsWith("PETSTORE_"));
    const command = [...arguments_, "--data-dir", this.dataDir];
    const { stdout } = await promisify(execFile)(program(), command, { env: Object.fromEntries(settings) });
    return stdout.trim();
  }
}

exports.startStore = async (...options) => {
  const child = spawn(program(), ["ephemeral", ...options], { stdio: ["pipe", "pipe", "inherit"] });
  for await (const line of createInterface(child.stdout)) {
    // Node.js exits although the store runs. The store then ends, because its stdin is closed.
    for (const handle of [child, child.stdin, child.stdout]) handle.unref();
    return new Store(child, JSON.parse(line));
  }
  throw new Error("petstore ephemeral has ended: see its message");
};
