// What tsc does not emit but the build needs beside it: scripts for Redis, migrations for Postgres, and the console.
import { cpSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { buildConsole } from "./build-console.js";

const source = "packages/server/src";
const built = "packages/server/dist";

for (const file of readdirSync(source, { recursive: true, encoding: "utf8" })) {
  if (/\.(lua|sql)$/.test(file)) cpSync(join(source, file), join(built, file));
}
await buildConsole();
