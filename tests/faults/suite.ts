import { loadavg } from "node:os";
import { join } from "node:path";
import { createHistory } from "@tenure/testing/history";
import type { Build } from "./build.ts";
import { createDeck, partyTargets } from "./deck.ts";
import type { KnownViolation, OwnFault } from "./dimension.ts";
import { createNemesis } from "./nemesis.ts";
import { becomeQuiet, check, settleAll } from "./phases.ts";
import { runRounds, unmetIn } from "./rounds.ts";
import type { Card, Pace } from "./schedule.ts";
import type { HotKind } from "./stores.ts";
import type { Findings, Workload } from "./workload.ts";
import { createWorld, type World, type WorldExtras } from "./world.ts";

export interface RunOptions extends WorldExtras {
  seed: number;
  /** Of load and faults; healing and settling come on top. */
  lengthMs: number;
  /** After each round the faults that bring about what was not met yet come oftener. One round, if not said. */
  roundMs?: number;
  /** How much longer it may go on while a hazard has not been met. */
  moreMs?: number;
  workloads: readonly Workload[];
  /** Names of the workloads whose hazards must be met; all, if none is named. */
  need?: readonly string[];
  hot: HotKind;
  /** The checkout, and the older commit that runs beside it, if any. */
  builds: readonly Build[];
  instances: number;
  /** Names of faults; none for all that make sense. */
  faults?: readonly string[];
  /** Added to the faults there are. */
  ownFaults?: readonly OwnFault[] | undefined;
  pace?: Pace | undefined;
  /** Runs when all instances are up and before any load. */
  prepare?: ((world: World) => Promise<void>) | undefined;
  known?: readonly KnownViolation[] | undefined;
  /** How long, in peace, until each thing is settled. */
  settleMs: number;
  /** Where the histories are kept. */
  directory: string;
  print: (line: string) => void;
}

export interface Verdict {
  operations: number;
  faults: number;
  byWorkload: Record<string, Findings>;
  /** Also those that were never done. */
  faultsByKind: Record<string, number>;
  /** What was found, each with the workload that found it. Empty is green. */
  violations: string[];
  /** Those of them that are about programs of the suite: red as well, but no promise is known to be broken. */
  stuck: string[];
  /** Violations of a known and open cause, each with its reason. Not among the others. */
  known: string[];
  /** Hazards that never happened: then the run has shown nothing about them. */
  unreached: string[];
  /** From the last fault to the moment in which everything was settled. */
  settledMs: number;
  /** Processes that wanted a processor: at the beginning, and at the end of the faults. */
  loadAverages: [number, number];
}

/** Load and faults; then healing; then quiet; then everything unknown is settled in time; then the checkers. */
export async function runFaults(options: RunOptions): Promise<Verdict> {
  const { workloads, print, directory } = options;
  const loadBefore = loadavg()[0]!;
  const world = await createWorld(options);
  try {
    for (const instance of world.instances) await instance.start(); // the first one migrates
    await options.prepare?.(world);
    await Promise.all(world.parties.map((party) => party.start()));
    const deck = deckOf(world, options);
    const history = createHistory(join(directory, "nemesis.jsonl"));
    const nemesis = createNemesis(world, { history, print, ownFaults: options.ownFaults });
    const { roundMs = options.lengthMs, moreMs = 0 } = options;
    const needed = neededOf(options);
    await runRounds(
      { ...options, workloads: needed, roundMs, moreMs },
      {
        nemesis,
        deck,
        cardsOf: (names) => favouredOf(world, options, { deck, names }),
        check: (workload) => check(world, workload),
      },
    );
    const loadAverages: [number, number] = [loadBefore, loadavg()[0]!];
    const healedFromMs = performance.now();
    print("         healing");
    await nemesis.heal();
    const stuck = await becomeQuiet(world, workloads);
    print("         settling");
    const dead = await settleAll(world, workloads);
    const settledMs = performance.now() - healedFromMs;
    print("         checking");
    const byWorkload: Record<string, Findings> = {};
    for (const workload of workloads) byWorkload[workload.name] = await check(world, workload);
    const done = new Map(deck.map(({ role, fault }) => [`${role}.${fault}`, 0]));
    for (const [kind, count] of nemesis.done) done.set(kind, count);
    const problems = [...stuck, ...dead];
    const judged = judge({ byWorkload, problems, done, needed, known: options.known ?? [] });
    return { ...judged, stuck, settledMs, loadAverages };
  } finally {
    await world.stop();
  }
}

const neededOf = ({ workloads, need = [] }: RunOptions): readonly Workload[] =>
  need.length === 0 ? workloads : workloads.filter(({ name }) => need.includes(name));

function deckOf(world: World, { workloads, faults = [], ownFaults }: RunOptions): Card[] {
  const targets = targetsOf(world, ownFaults);
  const cards = (names: readonly string[]) => createDeck(targets, workloads, names);
  const unknown = faults.filter((name) => cards([name]).length === 0);
  // A misspelt fault is one that never happens, and nobody would notice.
  if (unknown.length > 0) throw new Error(`there is no fault ${unknown.join(", ")} in this run`);
  return cards(faults);
}

const targetsOf = (world: World, ownFaults: readonly OwnFault[] = []) => ({
  instances: world.instances.length,
  parties: partyTargets(world.parties),
  hot: world.hot,
  redisNodes: world.redis.length,
  clocks: clocksOf(world),
  hasPostgresDisk: world.postgresDisk !== undefined,
  isMixed: world.isMixed,
  own: ownFaults.map(({ card }) => card),
});

/** As the hazard wishes them, but only what the run is about: `--faults` stays what it says. */
function favouredOf(
  world: World,
  { workloads, ownFaults }: RunOptions,
  { deck, names }: { deck: readonly Card[]; names: readonly string[] },
): Card[] {
  if (names.length === 0) return [];
  const has = (card: Card) =>
    deck.some(({ role, fault }) => role === card.role && fault === card.fault);
  return createDeck(targetsOf(world, ownFaults), workloads, names).filter(has);
}

function clocksOf({ instances, postgresClock }: World): ("instance" | "postgres")[] {
  return [
    ...(instances.some(({ clock }) => clock) ? (["instance"] as const) : []),
    ...(postgresClock ? (["postgres"] as const) : []),
  ];
}

function judge({
  byWorkload,
  problems,
  done,
  needed,
  known,
}: {
  byWorkload: Record<string, Findings>;
  problems: string[];
  done: ReadonlyMap<string, number>;
  needed: readonly Workload[];
  known: readonly KnownViolation[];
}): Omit<Verdict, "stuck" | "settledMs" | "loadAverages"> {
  const all = Object.entries(byWorkload);
  const found = [
    ...problems,
    ...all.flatMap(([name, { violations }]) => violations.map((each) => `${name}: ${each}`)),
  ];
  const causeOf = (violation: string) => known.find(({ pattern }) => pattern.test(violation));
  return {
    byWorkload,
    operations: all.reduce((sum, [, { checked }]) => sum + checked, 0),
    faults: [...done.values()].reduce((sum, count) => sum + count, 0),
    faultsByKind: Object.fromEntries([...done].sort()),
    violations: found.filter((each) => !causeOf(each)),
    known: found.flatMap((each) => {
      const cause = causeOf(each);
      return cause ? [`${each} (${cause.reason})`] : [];
    }),
    unreached: needed.flatMap(({ name }) =>
      unmetIn(byWorkload[name]!).map((hazard) => `${name}: ${hazard}`),
    ),
  };
}
