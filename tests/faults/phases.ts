import { signal } from "@tenure/testing/processes/proc";
import { type RunningProcess, startProcess } from "@tenure/testing/processes/process";
import { programSpec } from "./program-spec.ts";
import type { Findings, Workload } from "./workload.ts";
import type { World } from "./world.ts";

// What was begun is finished first, and a submit waits a minute for its result.
const QUIET_MS = 300_000;
/** Only against a program that hangs: each thing to settle has its own deadline, and there are many in a long run. */
const SETTLE_MS = 1_800_000;
const CHECK_MS = 600_000;

/** Asks every load program to end its load, and waits until it has. */
export async function becomeQuiet(world: World, workloads: readonly Workload[]): Promise<string[]> {
  const names = new Set(workloads.map(({ name }) => name));
  const problems: string[] = [];
  await Promise.all(
    world.parties
      .filter(({ role }) => names.has(role))
      .map(async ({ process: { pid, waitForLine }, name }) => {
        signal(pid, "SIGUSR2");
        await waitForLine(/^quiet$/, QUIET_MS).catch((error: Error) =>
          problems.push(`${name} did not become quiet: ${error.message}`),
        );
      }),
  );
  return problems;
}

/** Liveness, with a deadline: what was asked is answered, and new work is done. */
export async function settleAll(world: World, workloads: readonly Workload[]): Promise<string[]> {
  const problems: string[] = [];
  await Promise.all(
    workloads.map(async (workload) => {
      const settling = startProcess(programSpec("settle", world.sceneOf(workload, "settle")));
      const outcome = await finish(settling, /^settled$/, SETTLE_MS);
      if (outcome instanceof Error)
        problems.push(`${workload.name} is not live: ${reasonIn(outcome.message)}`);
    }),
  );
  return problems;
}

/** Its own words, of all that a program writes when it fails. */
const reasonIn = (output: string): string =>
  /^\w*Error: (.*)$/m.exec(output)?.[1] ?? output.slice(0, 500);

/** What the workload's checker has to say, from a process of its own. */
export async function check(world: World, workload: Workload): Promise<Findings> {
  const checking = startProcess(programSpec("check", world.sceneOf(workload, "check")));
  const outcome = await finish(checking, /^findings (.*)$/, CHECK_MS);
  if (outcome instanceof Error)
    throw new Error(`the checker of ${workload.name} failed`, { cause: outcome });
  return JSON.parse(outcome[1] ?? "") as Findings;
}

async function finish(
  running: RunningProcess,
  line: RegExp,
  limitMs: number,
): Promise<RegExpExecArray | Error> {
  const outcome = await running.waitForLine(line, limitMs).catch((error: Error) => error);
  await running.kill9();
  return outcome;
}
