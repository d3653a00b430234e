import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, describe, expect, test } from "vitest";
import { type Exit, startProcess } from "../support/process.ts";
import { repositoryRoot } from "../support/repository.ts";
import { scratchDirectory } from "../support/scratch.ts";
import { applyEdit } from "./build.ts";
import { PLANTS } from "./plants.ts";
import { WORKLOADS } from "./workloads.ts";

// The suite in small, as `npm run faults` runs it: real processes, a fixed seed. Minutes on a busy machine.
const RUN_MS = 900_000;
const SEED = 7_070;
const MINUTES = 0.6;
// Few enough that each has its turn in a short run, and between them they bring about every hazard.
const FAULTS = [
  ...["instance.kill", "instance.freeze:6000", "instance.postgres-cut", "storm"],
  ...["postgres.crash", "redis.crash", "fence.freeze", "fence.postgres-partition:4000"],
  ...["members.kill", "claims.hosts-partition:16000", "reader.kill", "reader.freeze:4000"],
  ...["unit.kill:5000", "worker.hosts-partition:13000", "turn-worker.kill"],
];
const STAGES_MAX = 12;
const PLANTS_A_DAY = 2;

beforeAll(() => {
  const tsc = join(repositoryRoot, "node_modules/typescript/bin/tsc");
  execFileSync(process.execPath, [tsc, "--build", "tests"], { cwd: repositoryRoot });
}, RUN_MS);

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

describe("the fault suite", () => {
  test("has a protection to take out for every planted bug", () => {
    expect(new Set(PLANTS.map(({ name }) => name)).size).toBe(PLANTS.length);
    for (const { edits, workloads, name } of PLANTS) {
      const known = WORKLOADS.map((workload) => workload.name);
      expect(known, name).toEqual(expect.arrayContaining(workloads));
      for (const edit of edits) {
        const text = readFileSync(join(repositoryRoot, "packages", edit.file), "utf8");
        expect(applyEdit(text, edit), name).not.toBe(text);
      }
    }
  });

  test("finds no violation, and has met every hazard it is about", {
    timeout: 2 * RUN_MS,
  }, async () => {
    // A busy machine lets less happen in the same time; then the run goes on until every hazard was met.
    const { code, output } = await runFaults(
      ...["--seed", `${SEED}`, "--minutes", `${MINUTES}`, "--stages", `${STAGES_MAX}`],
      ...["--faults", FAULTS.join(",")],
    );
    console.log(output.split("\n").slice(-14).join("\n"));
    expect(output).not.toContain("VIOLATION");
    expect(output).toMatch(/\d+ operations, \d+ faults, 0 violations, 0 hazards not reached/);
    expect(code).toBe(0);
  });

  // Another few every day; `npm run faults -- --planted` is all of them.
  const day = Math.floor(Date.now() / 86_400_000);
  const chosen = Array.from(
    { length: PLANTS_A_DAY },
    (_, index) => PLANTS[(day * PLANTS_A_DAY + index) % PLANTS.length]!,
  );
  test.each(chosen)("catches a planted bug: $name, $what", { timeout: RUN_MS }, async ({
    name,
  }) => {
    const { code, output } = await runFaults("--plants", name);
    expect(output).toContain("planted bugs caught: 1 of 1");
    expect(code).toBe(0);
  });
});
