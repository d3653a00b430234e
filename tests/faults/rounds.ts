import { setTimeout as wait } from "node:timers/promises";
import type { Nemesis } from "./nemesis.ts";
import { type Card, type Pace, planFaults } from "./schedule.ts";
import type { Findings, Workload } from "./workload.ts";

export interface RoundsOptions {
  seed: number;
  /** Of all rounds together; how long it takes to look at the hazards in between comes on top. */
  lengthMs: number;
  /** About how long one is. */
  roundMs: number;
  /** How much longer it may go on while a hazard has not been met. */
  moreMs: number;
  pace?: Pace | undefined;
  workloads: readonly Workload[];
  print: (line: string) => void;
}

export interface RoundsParts {
  nemesis: Pick<Nemesis, "run">;
  deck: readonly Card[];
  /** Those of the deck that are named so. */
  cardsOf(faults: readonly string[]): Card[];
  /** What has been met so far. What it says of violations is no verdict: nothing is settled yet. */
  check(workload: Workload): Promise<Findings>;
}

/** What is only tried when everything is healed cannot be met before. */
const IN_PEACE = "_in_peace";

/**
 * Load and faults in rounds, each with a seed of its own. After each the hazards are looked at, and what brings about
 * a missing one is done oftener in the next. Whether all are met is then not left to chance, nor to how much a busy
 * machine lets happen in a given time.
 */
export async function runRounds(options: RoundsOptions, parts: RoundsParts): Promise<void> {
  const { seed, lengthMs, roundMs, moreMs, pace, print } = options;
  const { deck, nemesis, cardsOf } = parts;
  const rounds = Math.max(1, Math.round(lengthMs / roundMs));
  const ownMs = lengthMs / rounds;
  const missing = new Map<Workload, readonly string[]>(options.workloads.map((each) => [each, []]));
  let moreUntilMs = Number.POSITIVE_INFINITY;
  for (let round = 0; ; round++) {
    const favoured = cardsOf(wishesOf(missing));
    const plan = planFaults(deck, { seed: seed + round, lengthMs: ownMs, pace, favoured });
    const startedMs = performance.now();
    await nemesis.run(plan, startedMs);
    await wait(Math.max(0, startedMs + ownMs - performance.now()));
    if (round + 1 === rounds) moreUntilMs = performance.now() + moreMs;
    if (performance.now() >= moreUntilMs) return;
    await lookAgain(missing, parts);
    if (missing.size === 0 && round + 1 >= rounds) return;
    const names = [...missing].flatMap(([{ name }, hazards]) =>
      hazards.map((hazard) => `${name}: ${hazard}`),
    );
    print(`         not met so far: ${names.join(", ") || "nothing"}`);
  }
}

const wishesOf = (missing: ReadonlyMap<Workload, readonly string[]>): string[] => [
  ...new Set(
    [...missing].flatMap(([workload, hazards]) =>
      hazards.flatMap((hazard) => workload.hazards[hazard] ?? []),
    ),
  ),
];

/** Only those that missed something: what was met stays met, and a checker of a long run reads a lot. */
async function lookAgain(
  missing: Map<Workload, readonly string[]>,
  { check }: RoundsParts,
): Promise<void> {
  for (const workload of [...missing.keys()]) {
    const found = await check(workload).catch(() => undefined);
    if (!found) continue; // a store does not answer; then as it was
    const unmet = unmetIn(found).filter((hazard) => !hazard.endsWith(IN_PEACE));
    if (unmet.length === 0) missing.delete(workload);
    else missing.set(workload, unmet);
  }
}

export const unmetIn = ({ reached }: Findings): string[] =>
  Object.keys(reached).filter((hazard) => reached[hazard] === 0);
