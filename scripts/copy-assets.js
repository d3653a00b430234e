// What tsc does not emit but the build needs beside it: scripts for Redis, migrations for Postgres, the examples that
// `tenure dev` runs and names, and the console.
import { cpSync, existsSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { buildConsole } from "./build-console.js";

const source = "packages/server/src";
const built = "packages/server/dist";

/** @param {string} directory */
const assetsIn = (directory) =>
  readdirSync(directory, { recursive: true, encoding: "utf8" }).filter((file) =>
    /\.(lua|sql)$/.test(file),
  );

for (const file of assetsIn(source)) cpSync(join(source, file), join(built, file));
// A migration that was renamed would otherwise run under both names.
for (const file of assetsIn(built)) {
  if (!existsSync(join(source, file))) rmSync(join(built, file));
}
for (const example of ["demo", "echo-worker", "send-transactions"]) {
  cpSync(join("examples", example), join("packages/cli/dist/examples", example), {
    recursive: true,
  });
}
await buildConsole();
