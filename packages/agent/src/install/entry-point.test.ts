import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { scratchDirectory } from "@tenure/testing/scratch";
import { expect, test } from "vitest";
import { findEntryPoint } from "./entry-point.ts";

/** A package on disk, as npm would have left it. */
function aPackage(manifest: Record<string, unknown>, files: Record<string, string> = {}): string {
  const directory = join(scratchDirectory("installed"), "node_modules", "thing");
  const all = {
    "package.json": JSON.stringify({ name: "@scope/thing", version: "1.0.0", ...manifest }),
    ...files,
  };
  for (const [path, text] of Object.entries(all)) {
    mkdirSync(dirname(join(directory, path)), { recursive: true });
    writeFileSync(join(directory, path), text);
  }
  return directory;
}

const NODE = "#!/usr/bin/env node\n";

test.each([
  ["its bin", { bin: "cli.js" }, { "cli.js": "" }, "cli.js", true],
  ["its only bin", { bin: { other: "./a/cli.mjs" } }, { "a/cli.mjs": "" }, "a/cli.mjs", true],
  ["the bin named like it", { bin: { x: "x.js", thing: "y.js" } }, { "y.js": "" }, "y.js", true],
  ["a script for Node by its first line", { bin: "run" }, { run: `${NODE}x` }, "run", true],
  ["a program that is none", { bin: "run" }, { run: "#!/bin/sh\nnode x" }, "run", false],
  ["a binary", { bin: "run" }, { run: "\x7fELF node" }, "run", false],
  ["its main", { main: "lib/main.js" }, { "lib/main.js": "" }, "lib/main.js", true],
  ["its main without an ending", { main: "lib" }, { "lib/index.js": "" }, "lib/index.js", true],
  ["its index", {}, { "index.js": "" }, "index.js", true],
  ["its exports", { exports: "./e.mjs" }, { "e.mjs": "" }, "e.mjs", true],
  [
    "its main when no bin can be meant",
    { bin: { x: "x.js", y: "y.js" }, main: "m.js" },
    { "m.js": "" },
    "m.js",
    true,
  ],
  ["its index when bin is nonsense", { bin: 7 }, { "index.js": "" }, "index.js", true],
])("a package is run by %s", async (_, manifest, files, path, isNode) => {
  const directory = aPackage(manifest, files as Record<string, string>);
  expect(await findEntryPoint(directory)).toEqual({ path: join(directory, path), isNode });
});

test("a bin outside its package is refused", async () => {
  await expect(findEntryPoint(aPackage({ bin: "../../../bin/sh" }))).rejects.toThrow(
    "bin of @scope/thing@1.0.0 is outside the package",
  );
});

test("a package without an entry point is refused", async () => {
  await expect(findEntryPoint(aPackage({}))).rejects.toThrow(
    "@scope/thing@1.0.0 has no main, and no bin or several without one of its name",
  );
});
