import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { createHistory } from "../support/history.ts";
import { signal } from "../support/proc.ts";
import { type RunningProcess, startProcess } from "../support/process.ts";
import type { Build } from "./build.ts";
import { createDeck, partyTargets } from "./deck.ts";
import { createNemesis, type Nemesis } from "./nemesis.ts";
import { programSpec } from "./program-spec.ts";
import { type Card, type Pace, planFaults } from "./schedule.ts";
import type { Findings, Workload } from "./workload.ts";
import { createWorld, type HotKind, type World } from "./world.ts";

export interface RunOptions {
  seed: number;
  /** Of load and faults; healing and settling come on top. */
  lengthMs: number;
  workloads: readonly Workload[];
  hot: HotKind;
  build: Build;
  instances: number;
  /** Names of faults; none for all that make sense. */
  faults?: readonly string[];
  pace?: Pace;
  /** How often the plan may go on with the next seed while a hazard has not been met; once, if not said. */
  stagesMax?: number;
  /** How long, in peace, until everything is settled. */
  settleMs: number;
  /** Where the histories are kept. */
  directory: string;
  print: (line: string) => void;
}

export interface Verdict {
  operations: number;
  faults: number;
  byWorkload: Record<string, Findings>;
  faultsByKind: Record<string, number>;
  /** What was found, each with the workload that found it. Empty is green. */
  violations: string[];
  /** Hazards that never happened: then the run has shown nothing about them. */
  unreached: string[];
}

/** What is only tried when everything is healed cannot be met before. */
const IN_PEACE = "_in_peace";
const QUIET_MS = 90_000;
/** On top of the time to settle: starting, reading, checking. */
const PROGRAM_MS = 90_000;

/** Load and faults; then healing; then quiet; then everything unknown is settled in time; then the checkers. */
export async function runFaults(options: RunOptions): Promise<Verdict> {
  const { workloads, print, directory } = options;
  const world = await createWorld(options);
  try {
    for (const instance of world.instances) await instance.start(); // the first one migrates
    await Promise.all(world.parties.map((party) => party.start()));
    const targets = {
      instances: world.instances.length,
      parties: partyTargets(world.parties),
      hot: world.hot,
      redisNodes: world.redis.length,
      clocks: clocksOf(world),
    };
    const deck = createDeck(targets, workloads, options.faults);
    const history = createHistory(join(directory, "nemesis.jsonl"));
    const nemesis = createNemesis(world, { history, print });
    await runStages(world, options, { deck, nemesis });
    print("         healing");
    await nemesis.heal();
    const stuck = await becomeQuiet(world, workloads);
    print("         settling");
    const dead = await settleAll(world, workloads, options.settleMs);
    print("         checking");
    const byWorkload = await checkAll(world, workloads);
    return judge({ byWorkload, problems: [...stuck, ...dead], done: nemesis.done });
  } finally {
    await world.stop();
  }
}

/**
 * The plan; and while a hazard has not been met, another one, with the next seed: on a busy machine less happens in
 * the same time. What the checkers say in between of violations is no verdict: nothing is settled yet.
 */
async function runStages(
  world: World,
  options: RunOptions,
  { deck, nemesis }: { deck: readonly Card[]; nemesis: Nemesis },
): Promise<void> {
  const { seed, stagesMax = 1, lengthMs, workloads, print } = options;
  for (let stage = 0; stage < stagesMax; stage++) {
    if (stage > 0) {
      const found = await checkAll(world, workloads).catch(() => undefined);
      const missing = found && unreachedIn(found).filter((name) => !name.endsWith(IN_PEACE));
      if (missing?.length === 0) return;
      print(`         going on: ${missing?.join(", ") ?? "the stores do not answer"}`);
    }
    const plan = planFaults(deck, { ...options, seed: seed + stage });
    const startedMs = performance.now();
    await nemesis.run(plan, startedMs);
    await wait(Math.max(0, startedMs + lengthMs - performance.now()));
  }
}

function clocksOf({ instances, postgresClock }: World): ("instance" | "postgres")[] {
  return [
    ...(instances.some(({ clock }) => clock) ? (["instance"] as const) : []),
    ...(postgresClock ? (["postgres"] as const) : []),
  ];
}

/** Asks every load program to end its load, and waits until it has. */
async function becomeQuiet(world: World, workloads: readonly Workload[]): Promise<string[]> {
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
async function settleAll(
  world: World,
  workloads: readonly Workload[],
  settleMs: number,
): Promise<string[]> {
  const problems: string[] = [];
  await Promise.all(
    workloads.map(async (workload) => {
      const settling = startProcess(programSpec("settle", world.sceneOf(workload, "settle")));
      const outcome = await finish(settling, /^settled$/, settleMs + PROGRAM_MS);
      if (outcome instanceof Error)
        problems.push(`${workload.name} is not live: ${reasonIn(outcome.message)}`);
    }),
  );
  return problems;
}

/** Its own words, of all that a program writes when it fails. */
const reasonIn = (output: string): string =>
  /^\w*Error: (.*)$/m.exec(output)?.[1] ?? output.slice(0, 500);

async function checkAll(
  world: World,
  workloads: readonly Workload[],
): Promise<Record<string, Findings>> {
  const found: Record<string, Findings> = {};
  for (const workload of workloads) {
    const checking = startProcess(programSpec("check", world.sceneOf(workload, "check")));
    const outcome = await finish(checking, /^findings (.*)$/, PROGRAM_MS);
    if (outcome instanceof Error)
      throw new Error(`the checker of ${workload.name} failed`, { cause: outcome });
    found[workload.name] = JSON.parse(outcome[1] ?? "") as Findings;
  }
  return found;
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

function judge({
  byWorkload,
  problems,
  done,
}: {
  byWorkload: Record<string, Findings>;
  problems: string[];
  done: ReadonlyMap<string, number>;
}): Verdict {
  const all = Object.entries(byWorkload);
  return {
    byWorkload,
    operations: all.reduce((sum, [, { checked }]) => sum + checked, 0),
    faults: [...done.values()].reduce((sum, count) => sum + count, 0),
    faultsByKind: Object.fromEntries([...done].sort()),
    violations: [
      ...problems,
      ...all.flatMap(([name, { violations }]) => violations.map((each) => `${name}: ${each}`)),
    ],
    unreached: unreachedIn(byWorkload),
  };
}

function unreachedIn(byWorkload: Record<string, Findings>): string[] {
  return Object.entries(byWorkload).flatMap(([name, { reached }]) =>
    Object.entries(reached)
      .filter(([, count]) => count === 0)
      .map(([hazard]) => `${name}: ${hazard}`),
  );
}
