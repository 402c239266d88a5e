"use strict";

const { execFile, spawn } = require("node:child_process");
const { request } = require("node:http");
const { createInterface } = require("node:readline");
const { promisify } = require("node:util");
const { program } = require("./program.js");

class Store {
  #child;
  #closed;

  constructor(child, closed, { storeUrl, ...ready }) {
    this.#child = child;
    this.#closed = closed;
    Object.assign(this, { url: storeUrl, ...ready });
  }

  failingKey(preferences) {
    return this.#run("key", "create", "--account", this.email, "--name", "failing", "--prefer", preferences);
  }

  async requests(key = this.key) {
    const { headers, body } = await this.#journal("GET", key);
    const dropped = Number(headers["requests-dropped"]);
    if (dropped) throw new Error(`the store has dropped ${dropped} requests: reset it more often`);
    return JSON.parse(body);
  }

  async reset(...options) {
    await this.#run("reset", "--yes", ...options);
    for (const key of [this.key, this.customerKey]) await this.#journal("DELETE", key);
  }

  async stop() {
    for (const handle of [this.#child, this.#child.stdout, this.#child.stderr]) handle.ref();
    this.#child.kill();
    await this.#closed;
  }

  [Symbol.asyncDispose]() {
    return this.stop();
  }

  #requireRunning() {
    const { exitCode, signalCode, killed } = this.#child;
    if (exitCode !== null || signalCode !== null || killed) throw new Error("the store has ended");
  }

  async #journal(method, key) {
    this.#requireRunning();
    // Tests and their environments replace the global `fetch`. A new agent ignores proxies.
    const options = { method, headers: { Authorization: `Bearer ${key}` }, agent: false };
    const response = await new Promise((resolve, reject) => {
      request(`${this.opsUrl}/requests`, options, resolve).on("error", reject).end();
    });
    let body = "";
    for await (const text of response.setEncoding("utf8")) body += text;
    if (response.statusCode >= 300) throw new Error(`${method} /requests: ${response.statusCode} ${body}`);
    return { headers: response.headers, body };
  }

  async #run(...arguments_) {
    this.#requireRunning();
    // Settings in the environment are for another store.
    const settings = Object.entries(process.env).filter(([name]) => !name.startsWith("PETSTORE_"));
    const command = [...arguments_, "--data-dir", this.dataDir];
    try {
      const { stdout } = await promisify(execFile)(program(), command, { env: Object.fromEntries(settings) });
      return stdout.trim();
    } catch (error) {
      throw new Error(message(arguments_[0], error.stderr, error.code));
    }
  }
}

/** Returns the last error in `log` with the warnings before it, without hints about the usage. */
function message(command, log = "", status) {
  const before = `\n${log}`.split("\nerror: ");
  const error = before.length > 1 ? before.pop().split("\n\n")[0].trim() : `ended with status ${status}`;
  const warnings = before.join("\n").split("\n").filter((line) => line.startsWith("warning: "));
  return [`petstore ${command}: ${error}`, ...warnings].join("\n");
}

exports.startStore = async (...options) => {
  // In a session of its own: Ctrl-C in a terminal is for the tests, which may still use the store then.
  const child = spawn(program(), ["ephemeral", ...options], { stdio: "pipe", detached: true });
  const closed = new Promise((resolve) => child.once("close", resolve));
  let failure;
  child.on("error", (error) => {
    failure = error;
  });
  let log = "";
  child.stderr.setEncoding("utf8").on("data", (text) => {
    log = (log + text).slice(-10_000);
    process.stderr.write(text);
  });
  for await (const line of createInterface(child.stdout)) {
    child.stdout.resume();
    // Node.js exits although the store runs. The store then ends, because its stdin is closed.
    for (const handle of [child, child.stdin, child.stdout, child.stderr]) handle.unref();
    return new Store(child, closed, JSON.parse(line));
  }
  const status = await closed;
  throw failure ?? new Error(message("ephemeral", log, status));
};
