import { join } from "node:path";
import { deploymentsOf, runningStatuses, SLEEPER } from "@tenure/testing/fleet/deployments";
import { freePort } from "@tenure/testing/processes/free-port";
import { type RunningProcess, startProcess } from "@tenure/testing/processes/process";
import { repositoryRoot } from "@tenure/testing/repository";
import { scratchDirectory } from "@tenure/testing/scratch";
import { createDatabase, type TestDatabase } from "@tenure/testing/stores/database";
import { stores } from "@tenure/testing/stores/stores";
import { until } from "@tenure/testing/until";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { DEADLINE_MS } from "./node-units.ts";

vi.setConfig({ testTimeout: 240_000 });

const BIN = join(repositoryRoot, "packages/cli/bin/tenure.js");

/** `redirect` as a shell writes it; `>(true)` is a pipe whose reader ends at once. */
function startRedirected(
  redirect: string,
  args: string[],
  env: Record<string, string> = {},
): RunningProcess {
  const script = `"$@" ${redirect}`;
  return startProcess({
    command: "bash",
    args: ["-c", `exec ${script}`, "bash", process.execPath, BIN, ...args],
    env,
  });
}

let database: TestDatabase;
let server: RunningProcess;
let url: string;
beforeAll(async () => {
  database = await createDatabase(stores().postgresAdminUri);
  const port = await freePort();
  url = `http://127.0.0.1:${port}`;
  server = startRedirected(">/dev/full 2>/dev/full", ["server", "--port", `${port}`], {
    TENURE_SERVER_POSTGRES_URI: database.uri,
  });
  const isReady = () =>
    fetch(`${url}/health/ready`)
      .then((answer) => answer.ok)
      .catch(() => false);
  await until(isReady, { deadlineMs: DEADLINE_MS, what: "a server that can write nothing" });
});
afterAll(async () => {
  await server?.kill9();
  await database?.drop();
});

test.each([
  ["on a full disk", ">/dev/full 2>/dev/full"],
  ["into a pipe without a reader", "> >(true) 2> >(true)"],
])("an agent whose output goes %s runs its deployment and stops with 0", async (_, redirect) => {
  const { create, read } = deploymentsOf(url);
  const { id } = await create({ command: SLEEPER });
  const unit = startRedirected(redirect, ["node", "run", "--url", url], {
    NODE_UNIT_DATA_DIR: scratchDirectory("unit"),
    NODE_UNIT_STOP_GRACE_MS: "2000",
    ENABLE_CUSTOM_COMMAND: "true",
  });
  const runs = async () => runningStatuses(await read(id)).length > 0;
  await until(runs, { deadlineMs: DEADLINE_MS, what: "the deployment to run" });
  expect(await unit.stop(DEADLINE_MS)).toEqual({ code: 0, signal: null });
});

test("a server that can write nothing stops with 0", async () => {
  expect(await server.stop(DEADLINE_MS)).toEqual({ code: 0, signal: null });
});

test("a command whose reader is gone ends with 141, without a word", async () => {
  const run = startRedirected("--help > >(true)", []);
  expect(await run.exited).toEqual({ code: 141, signal: null });
  expect(run.stderr()).toBe("");
});

test("a command whose result cannot be written says so and ends with 1", async () => {
  const run = startRedirected("--help >/dev/full", []);
  expect(await run.exited).toEqual({ code: 1, signal: null });
  expect(run.stderr()).toBe("could not write the output: ENOSPC: no space left on device, write");
});
