// What tsc does not emit but the build needs beside it: scripts for Redis and migrations for Postgres.
import { cpSync, readdirSync } from "node:fs";
import { join } from "node:path";

const source = "packages/server/src";
const built = "packages/server/dist";

for (const file of readdirSync(source, { recursive: true, encoding: "utf8" })) {
  if (/\.(lua|sql)$/.test(file)) cpSync(join(source, file), join(built, file));
}
