import { existsSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { directoryOf } from "../scratch.ts";
import { until } from "../until.ts";
import { startPlantedRun } from "../vitest/planted-run.ts";
import { identify, isAlive, type ProcessIdentity } from "./proc.ts";
import type { RunningProcess } from "./process.ts";
import { startedBy, sweepOrphans } from "./process-registry.ts";

const storesOfARun = 5; // one Postgres, one Redis, three masters

// Each test runs vitest within vitest, with stores of its own.
describe("what a test run has started", { timeout: 240_000 }, () => {
  test("a process ends with the worker that started it", async () => {
    const run = startPlantedRun("leaves");
    const [, left = ""] = await run.waitForLine(/left (.*)/);
    await run.exited;
    await untilGone([JSON.parse(left)]);
  });

  test("a process is left alone while its run lives, and ended by the next run after kill -9", async () => {
    const { run, owner, stores, worker } = await startLingeringRun();
    await sweepOrphans();
    expect([...stores, ...worker].filter(isAlive)).toHaveLength(storesOfARun + 2);

    await run.kill9();
    await untilGone(worker); // by itself, and with what it had started
    expect(stores.filter(isAlive)).toHaveLength(storesOfARun);
    expect(await sweepOrphans()).toBeGreaterThanOrEqual(storesOfARun);

    expect(stores.filter(isAlive)).toHaveLength(0);
    expect(existsSync(directoryOf(owner))).toBe(false);
  });

  test("a process is gone after Ctrl-C", async () => {
    const { run, stores, worker } = await startLingeringRun();
    expect(stores.filter(isAlive)).toHaveLength(storesOfARun);
    process.kill(run.pid, "SIGINT");
    await run.exited;
    await untilGone([...stores, ...worker]);
  });
});

interface LingeringRun {
  run: RunningProcess;
  owner: ProcessIdentity;
  stores: ProcessIdentity[];
  /** Vitest's worker and the process that its test has started. */
  worker: ProcessIdentity[];
}

async function startLingeringRun(): Promise<LingeringRun> {
  const run = startPlantedRun("lingers", { stores: true });
  const [, worker = ""] = await run.waitForLine(/lingering (.*)/, 120_000);
  const owner = identify(run.pid) as ProcessIdentity;
  return { run, owner, stores: startedBy(owner), worker: JSON.parse(worker) };
}

async function untilGone(processes: ProcessIdentity[]): Promise<void> {
  await until(() => !processes.some(isAlive), { deadlineMs: 60_000, what: "their end" });
}
