#!/usr/bin/env node
"use strict";

const { spawn } = require("node:child_process");
const { program } = require("./program.js");

const child = spawn(program(), process.argv.slice(2), { stdio: "inherit" });
for (const signal of ["SIGHUP", "SIGINT", "SIGTERM"]) process.on(signal, () => child.kill(signal));
child.on("exit", (status) => {
  process.exitCode = status ?? 1;
});
child.on("error", ({ message }) => {
  console.error(`error: ${message}`);
  process.exitCode = 1;
});
