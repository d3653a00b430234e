import { chmodSync, existsSync } from "node:fs";
import { join } from "node:path";
import { type FakeRegistry, startFakeRegistry } from "@tenure/testing/programs/fake-registry";
import { scratchDirectory } from "@tenure/testing/scratch";
import { beforeAll, expect, test, vi } from "vitest";
import { aRow, startExecutor, wanted } from "../../../testing/executor-fixture.ts";
import type { ExecutorOptions } from "../contract.ts";

vi.setConfig({ testTimeout: 120_000 });

const cache = scratchDirectory("npm-cache");
let registry: FakeRegistry;
beforeAll(async () => {
  registry = await startFakeRegistry();
  return () => registry.close();
});

/** An executor whose npm knows our registry only. */
const startWithRegistry = (options: Partial<ExecutorOptions> = {}) =>
  startExecutor({
    ...options,
    env: {
      PATH: process.env.PATH,
      HOME: cache,
      NPM_CONFIG_REGISTRY: registry.url,
      npm_config_cache: cache,
      npm_config_fetch_retries: "0",
    },
  });

const SERVE = `#!/usr/bin/env node
console.log("serving", ...process.argv.slice(2));
setInterval(() => {}, 1000);`;

test("a package is installed, then its program runs with the arguments", async () => {
  registry.publish({
    name: "@scope/server",
    version: "1.2.3",
    files: { "bin/serve": { text: SERVE, mode: 0o755 }, "bin/other.js": "" },
    manifest: { bin: { other: "bin/other.js", server: "bin/serve" } },
  });
  const { executor, reported, statesOf, logLines } = await startWithRegistry();
  const server = { package_name: "@scope/server", package_version: "1.2.3" };
  const row = aRow({ ...server, args: ["--port", "80 80"] });
  executor.setDesired([wanted(row)]);
  await reported(row, "running");
  expect(statesOf(row)).toEqual(["installing", "starting", "running"]);
  expect(await logLines(row)).toEqual(["serving --port 80 80"]);
  // Another one of the same package installs nothing.
  const twin = aRow(server);
  executor.setDesired([wanted(row), wanted(twin)]);
  await reported(twin, "running");
  expect(statesOf(twin)).toEqual(["starting", "running"]);
});

if (process.getuid?.() === 0)
  test("a package installed before runs as another user, who can read but not change it", async () => {
    registry.publish({
      name: "@scope/shared",
      version: "1.0.0",
      files: { "index.js": `require("fs").appendFileSync(__filename, "//"); ${SERVE.slice(20)}` },
    });
    const home = scratchDirectory("home");
    chmodSync(home, 0o755);
    const dataDir = join(home, "node");
    const row = aRow({ package_name: "@scope/shared", package_version: "1.0.0" });
    const plain = await startWithRegistry({ dataDir, childUmask: 0o077 });
    plain.executor.setDesired([wanted(row)]);
    await plain.reported(row, "running");
    await plain.executor.stop();
    const runAs = { kind: "each", firstUid: 71_000, lastUid: 71_999, gid: 71_000 } as const;
    const { executor, reported } = await startWithRegistry({ dataDir, runAs });
    executor.setDesired([wanted(row)]);
    const { last_error } = await reported(row, "backoff");
    expect(last_error).toContain("EACCES: permission denied, open");
  });

test("a failed install is reported with npm's output, and retried until it succeeds", async () => {
  const late = { name: "late", version: "1.0.0", files: { "index.js": SERVE } };
  registry.publish({ ...late, tarball: "broken" });
  const { executor, reported, dataDir } = await startWithRegistry();
  const row = aRow({ package_name: "late", package_version: "1.0.0" });
  executor.setDesired([wanted(row)]);
  const failed = await reported(row, "failed");
  expect(failed.last_error).toMatch(/^npm install failed with exit code \d+: (.|\n)+/);
  expect(existsSync(join(dataDir, "packages/late@1.0.0"))).toBe(false);
  registry.publish(late);
  await reported(row, "running");
});

test("a deployment that is taken over next is installed and not started", async () => {
  registry.publish({ name: "moving", version: "1.0.0", files: { "index.js": SERVE } });
  const { executor, reported, statesOf } = await startWithRegistry();
  const row = aRow({ package_name: "moving", package_version: "1.0.0" });
  executor.setDesired([wanted(row, "prepare")]);
  await reported(row, "stopped");
  expect(statesOf(row)).toEqual(["installing", "stopped"]);
  executor.setDesired([wanted({ ...row, generation: 2 })]);
  await reported(row, "running", ({ generation }) => generation === 2);
  expect(statesOf(row)).toEqual(["installing", "stopped", "starting", "running"]);
});

test("an install for a cancelled handover is not reported as ready", async () => {
  const hanging = { name: "hanging", version: "1.0.0", files: { "index.js": SERVE } };
  registry.publish({ ...hanging, tarball: "hanging" });
  const { executor, reported, statesOf } = await startWithRegistry();
  const row = aRow({ package_name: "hanging", package_version: "1.0.0" });
  executor.setDesired([wanted(row, "prepare")]);
  await reported(row, "installing");
  await executor.stop();
  // "stopped" reports a finished install, and the owner would stop its child.
  expect(statesOf(row)).toEqual(["installing", "failed"]);
});

test("a command finds the commands of its package", async () => {
  registry.publish({
    name: "tool",
    version: "1.0.0",
    files: { "tool.js": "#!/usr/bin/env node\nconsole.log('tool speaks')" },
    manifest: { bin: "tool.js" },
  });
  const { executor, logLines } = await startWithRegistry();
  const row = aRow({
    package_name: "tool",
    package_version: "1.0.0",
    command: "tool; exec sleep 1000",
  });
  executor.setDesired([wanted(row)]);
  expect(await logLines(row)).toEqual(["tool speaks"]);
});

test("an invalid version fails without npm", async () => {
  const { executor, reported } = await startWithRegistry();
  const row = aRow({ package_name: "thing", package_version: "npm:other@1.0.0" });
  executor.setDesired([wanted(row)]);
  expect((await reported(row, "failed")).last_error).toContain("is not an exact version");
  expect(registry.requests.filter((path) => /thing|other/.test(path))).toEqual([]);
});
