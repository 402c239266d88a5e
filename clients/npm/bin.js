#!/usr/bin/env node
"use strict";

const { spawn } = require("node:child_process");
const { constants } = require("node:os");
const { isatty } = require("node:tty");
const { program } = require("./program.js");

// The package of the program is missing, or the program does not start.
process.on("uncaughtException", ({ message }) => {
  console.error(`error: ${message}`);
  process.exitCode = 1;
});
const child = spawn(program(), process.argv.slice(2), { stdio: "inherit" });
// Ctrl-C reaches the program from the terminal, and a second one would cut its end short.
const ofTerminal = (signal) => signal === "SIGINT" && [0, 1, 2].some((fd) => isatty(fd));
for (const signal of ["SIGHUP", "SIGINT", "SIGTERM"]) {
  process.on(signal, () => ofTerminal(signal) || child.kill(signal));
}
child.on("exit", (status, signal) => {
  process.exitCode = status ?? 128 + constants.signals[signal];
});
