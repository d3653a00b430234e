#!/usr/bin/env node
import { existsSync } from "node:fs";

const main = new URL("../dist/main.js", import.meta.url);
if (!existsSync(main)) {
  process.stderr.write("tenure is not built yet: run `npm run build` in the repository first\n");
  process.exit(1);
}
const { main: run } = await import(main.href);
process.exitCode = await run(process.argv);
