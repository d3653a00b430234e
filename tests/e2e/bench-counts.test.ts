import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { startProcess } from "@tenure/testing/processes/process";
import { repositoryRoot } from "@tenure/testing/repository";
import { beforeAll, expect, test } from "vitest";

/** Some 20 s on an idle machine; a busy one takes many times as long. */
const timeout = 400_000;

beforeAll(async () => {
  const tsc = join(repositoryRoot, "node_modules/typescript/bin/tsc");
  await promisify(execFile)(process.execPath, [tsc, "--build", "bench"], { cwd: repositoryRoot });
});

test("the bench counts frames, writes, commands, round trips and bytes of a job in Redis mode", {
  timeout,
}, async () => {
  const figures = await countMode("redis");
  const between = (what: string, least: number, most: number) => {
    expect(figures[what], what).toBeGreaterThanOrEqual(least);
    expect(figures[what], what).toBeLessThanOrEqual(most);
  };
  // Submit, accepted, assign and two results. On a busy machine some acknowledgements go alone, and the first twenty jobs
  // report their start.
  for (const atOnce of [1, 128]) {
    between(`frames in, ${atOnce} at once`, 2, 3.5);
    between(`frames out, ${atOnce} at once`, 2, 3.5);
    between(`frames, ${atOnce} at once`, 4, 6.5);
  }
  between("Redis commands, 1 at once", 15, 30);
  between("Redis commands, 128 at once", 8, 24);
  between("writes to sessions and nodes, 1 at once", 2, 4);
  between("writes to sessions and nodes, 128 at once", 0.01, 2);
  between("writes to Redis, 1 at once", 1, 4);
  between("writes to Redis, 128 at once", 0.01, 2);
  between("round trips until the worker has it", 0.7, 1.6);
  between("round trips until the session has the result", 1.4, 2.8);
  between("kB allocated by the servers", 2, 250);
  for (const part of ["server", "submitter", "worker", "store"])
    between(`µs of processor time: ${part}`, 0, 100_000);
});

test("the bench counts JetStream, which it starts and stops itself", { timeout }, async () => {
  const figures = await countMode("jetstreamFile");
  // Submit to worker, and worker to submitter: each passes the NATS server once.
  expect(figures["round trips until the worker has it"]).toBeCloseTo(1, 0);
  expect(figures["round trips until the session has the result"]).toBeCloseTo(2, 0);
});

/** Runs the program as an operator would, at a size of seconds. Returns the column by its first cell. */
async function countMode(mode: string): Promise<Record<string, number>> {
  const running = startProcess({
    command: process.execPath,
    args: ["bench/dist/run.js", "jobs", "--part", "counts", "--mode", mode, "--jobs", "300"],
  });
  const { code } = await running.exited;
  expect(code, running.stderr()).toBe(0);
  const rows = running.stdout().matchAll(/^(\S.*?) {2,}([\d.]+)(?: {2}|$)/gm);
  return Object.fromEntries([...rows].map(([, what, figure]) => [what, Number(figure)]));
}
