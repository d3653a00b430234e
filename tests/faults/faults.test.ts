import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { type Exit, startProcess } from "@tenure/testing/processes/process";
import { repositoryRoot } from "@tenure/testing/repository";
import { scratchDirectory } from "@tenure/testing/scratch";
import { beforeAll, describe, expect, test } from "vitest";
import { RELEASE } from "./commit-build.ts";
import { DIMENSIONS, main } from "./dimensions.ts";
import { PLANTS } from "./plants.ts";
import { SHORT_RUN_FAULTS } from "./short-run.ts";

// The suite in small, as `npm run faults` runs it: real processes, a fixed seed. No length of time is expected of it:
// it goes on until every hazard was met, however slow the machine, and these limits are only against a hang.
const TIMEOUT_MS = 2_400_000;
const SEED = 7_070;
const ROUND_MINUTES = 0.5;
const MORE_MINUTES = 20;

beforeAll(() => {
  const tsc = join(repositoryRoot, "node_modules/typescript/bin/tsc");
  execFileSync(process.execPath, [tsc, "--build", "tests"], { cwd: repositoryRoot });
}, TIMEOUT_MS);

async function runFaults(...args: string[]): Promise<Exit & { output: string }> {
  const run = startProcess({
    command: process.execPath,
    args: [
      join(repositoryRoot, "tests/dist/faults/run.js"),
      ...["--keep", scratchDirectory("faults"), ...args],
    ],
  });
  const exit = await run.exited;
  return { ...exit, output: `${run.stdout()}\n${run.stderr()}` };
}

/** Another two every day until each had its turn; `npm run faults -- --planted` is all of them at once. */
function plantsOfToday(): typeof PLANTS {
  const half = Math.ceil(PLANTS.length / 2);
  const day = Math.floor(Date.now() / 86_400_000) % half;
  return PLANTS.filter((_, index) => index % half === day);
}

describe("the fault suite", () => {
  test("the short run finds no violation and meets every hazard", {
    timeout: TIMEOUT_MS,
  }, async () => {
    const { code, output } = await runFaults(
      ...["--dimensions", main.name],
      ...[
        "--seed",
        `${SEED}`,
        "--hot",
        "redis",
        "--instances",
        "2",
        "--faults",
        SHORT_RUN_FAULTS.join(","),
      ],
      ...["--minutes", `${ROUND_MINUTES}`, "--round", `${ROUND_MINUTES}`],
      ...["--more", `${MORE_MINUTES}`],
    );
    const summary = output.slice(output.lastIndexOf(" checking\n"));
    console.log(summary);
    expect(summary).toMatch(/\d+ operations, \d+ faults, 0 violations, 0 hazards not reached/);
    expect(code).toBe(0);
  });

  const others = DIMENSIONS.filter(({ name }) => name !== main.name);
  test.each(others)("the dimension $name has no violation: $summary", {
    timeout: TIMEOUT_MS,
  }, async ({ name, seconds }) => {
    const { code, output } = await runFaults(
      ...["--dimensions", name, "--seed", `${SEED}`, "--hot", "redis", "--instances", "2"],
      ...["--minutes", `${seconds / 60}`, "--more", `${MORE_MINUTES}`],
    );
    console.log(output.slice(output.lastIndexOf(" checking\n")));
    expect(output).toMatch(/0 violations,( \d+ of known causes,)? 0 hazards not reached\n/);
    expect(code).toBe(0);
  });

  test("programs of release 0.1.0 beside the checkout's cause no violation", {
    timeout: TIMEOUT_MS,
  }, async () => {
    const { code, output } = await runFaults(
      ...["--mixed", RELEASE, "--dimensions", main.name, "--need", "versions"],
      ...["--faults", "swap,instance.kill,unit.kill", "--seed", `${SEED}`, "--hot", "redis"],
      ...["--instances", "2", "--minutes", `${ROUND_MINUTES}`, "--round", `${ROUND_MINUTES}`],
      ...["--more", `${MORE_MINUTES}`],
    );
    console.log(output.slice(output.lastIndexOf(" checking\n")));
    expect(output).toMatch(/\d+ operations, \d+ faults, 0 violations, 0 hazards not reached/);
    expect(code).toBe(0);
  });

  test.each(plantsOfToday())("the suite catches the planted bug $name: $what", {
    timeout: TIMEOUT_MS,
  }, async ({ name }) => {
    const { code, output } = await runFaults("--plants", name);
    expect(output).toContain("planted bugs caught: 1 of 1");
    expect(code).toBe(0);
  });
});
