import assert from "node:assert";
import { READY_LINE } from "@tenure/testing/fleet/running-server";
import { startTenure } from "@tenure/testing/processes/process";
import { scratchDirectory } from "@tenure/testing/scratch";
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
    const occasions: [string, string, RegExp][] = [
      ["tenure server, first start: the database is made", "server", READY_LINE],
      ["tenure server, second start", "server", READY_LINE],
      ["tenure dev, which npm start runs", "dev", /Tenure is ready at (http:\/\/\S+)/],
    ];
    for (const [occasion, command, readyLine] of occasions) {
      const seconds = await secondsUntilReady({ command, readyLine, dataDir });
      print(`${occasion}: ready after ${seconds.toFixed(2)} s (goal ${GOAL_SECONDS} s)`);
      assert(seconds <= limitSeconds, `${occasion} took ${seconds.toFixed(1)} s`);
    }
  },
};

/** From the start of the process to `/health/ready` answering 200. */
async function secondsUntilReady({
  command,
  readyLine,
  dataDir,
}: {
  command: string;
  readyLine: RegExp;
  dataDir: string;
}): Promise<number> {
  const startedMs = performance.now();
  const tenure = startTenure([command, "--port", "0"], { dataDir });
  const [, url] = await tenure.waitForLine(readyLine, CI_LIMIT_SECONDS * 1_000);
  const { status } = await fetch(`${url}/health/ready`);
  const seconds = (performance.now() - startedMs) / 1_000;
  assert.equal(status, 200);
  const { code } = await tenure.stop();
  assert.equal(code, 0, "a server that was asked to stop ends with 0");
  return seconds;
}
