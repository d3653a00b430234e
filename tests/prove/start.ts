import assert from "node:assert";
import { startServer } from "../e2e/running-server.ts";
import { scratchDirectory } from "../support/scratch.ts";
import type { Proof } from "./proof.ts";

const GOAL_SECONDS = 10;
// A test run shares its machine with other tests; far beyond the goal is still wrong.
const CI_LIMIT_SECONDS = 60;

export const start: Proof = {
  name: "start",
  summary: `an empty directory and nothing installed: ready within ${GOAL_SECONDS} s`,
  async run({ size, print }) {
    const limitSeconds = size === "full" ? GOAL_SECONDS : CI_LIMIT_SECONDS;
    const dataDir = scratchDirectory("start");
    for (const occasion of ["first start, which makes the database", "second start"]) {
      const seconds = await secondsUntilReady(dataDir);
      print(`${occasion}: ready after ${seconds.toFixed(2)} s (goal ${GOAL_SECONDS} s)`);
      assert(seconds <= limitSeconds, `${occasion} took ${seconds.toFixed(1)} s`);
    }
  },
};

/** From the start of the process to `/health/ready` answering 200. */
async function secondsUntilReady(dataDir: string): Promise<number> {
  const startedMs = performance.now();
  const server = await startServer({ dataDir });
  const { code, status } = await server.health();
  const seconds = (performance.now() - startedMs) / 1_000;
  assert.deepEqual({ code, status }, { code: 200, status: "ready" });
  const { code: exitCode } = await server.stop();
  assert.equal(exitCode, 0, "a server that was asked to stop ends with 0");
  return seconds;
}
