import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { startProcess } from "@tenure/testing/processes/process";
import { repositoryRoot } from "@tenure/testing/repository";
import { expect, test } from "vitest";

// Failpoints can stop, delay and kill a server. What is shipped must not contain them, armed or not.

const ARMED = join(repositoryRoot, "packages/server/testing/failpoints.js");
const PACKAGES = join(repositoryRoot, "packages");

/** Words that only the armed form has: how it is armed, and what it does. */
const MACHINERY = ["armFailpoint", "disarmAll", "env.TENURE_FAILPOINTS", "SIGSTOP", "armedHere"];

test("the armed form has the words that are looked for", () => {
  const armed = readFileSync(ARMED, "utf8");
  expect(MACHINERY.filter((word) => !armed.includes(word))).toEqual([]);
});

test("no shipped file has any of them", () => {
  const files = shippedFiles();
  expect(files.length).toBeGreaterThan(50);
  const armed = files.filter((file) => {
    const text = readFileSync(file, "utf8");
    return MACHINERY.some((word) => text.includes(word));
  });
  expect(armed).toEqual([]);
});

test("a packed package has nothing of testing/", () => {
  const output = execFileSync("npm", ["pack", "--dry-run", "--json"], {
    cwd: join(PACKAGES, "server"),
    encoding: "utf8",
    stdio: ["ignore", "pipe", "ignore"],
  });
  const [pack] = JSON.parse(output) as [{ files: { path: string }[] }];
  const paths = pack.files.map(({ path }) => path);
  expect(paths).toContain("dist/kernel/failpoint.js");
  expect(paths.filter((path) => !/^(dist\/|package\.json$|README|LICENSE)/.test(path))).toEqual([]);
});

test.each([
  ["nothing but its defaults", [], "dist/kernel/failpoint.js", "passed"],
  ["the condition of the tests", ["--conditions=tenure-test"], "testing/failpoints.js", "killed"],
])("Node with %s gets %s %s, which is %s", async (_, conditions, file, fate) => {
  // As a file of the server would import it: its own package decides what #failpoint is.
  const program = `
    console.log(import.meta.resolve("#failpoint"));
    const { failpoint } = await import("#failpoint");
    await failpoint("here");
    console.log("passed");`;
  const node = startProcess({
    command: process.execPath,
    args: [...conditions, "--input-type=module", "-e", program],
    cwd: join(PACKAGES, "server"),
    env: { TENURE_FAILPOINTS: "here=kill" },
  });
  const { signal } = await node.exited;
  expect(node.stdout()).toContain(join(PACKAGES, "server", file));
  expect(signal === "SIGKILL" ? "killed" : node.stdout().split("\n").at(-1)).toBe(fate);
});

/** `testing` is only for tests: it kills and freezes processes itself. */
function shippedFiles(): string[] {
  const shipped = readdirSync(PACKAGES).filter((name) => name !== "testing");
  return shipped.flatMap((name) => {
    const dist = join(PACKAGES, name, "dist");
    const files = readdirSync(dist, { recursive: true, withFileTypes: true });
    return files.filter((file) => file.isFile()).map((file) => join(file.parentPath, file.name));
  });
}
