import { setTimeout as wait } from "node:timers/promises";
import { createSeeded, hash, type Seeded } from "@tenure/testing/seeded";
import { groupBy, type Operation } from "../checkers/operations.ts";
import type { LoadContext } from "../workload.ts";

/** One of many who do one thing at a time; its name is a process of the history. */
export interface Caller {
  name: string;
  random: Seeded;
  /** Between `minMs` and `maxMs`, and not at all when the load is over. */
  pause(minMs: number, maxMs: number): Promise<void>;
  chance(share: number): boolean;
  oneOf<T>(items: readonly T[]): T;
}

/** Runs `step` again and again in every caller until the load is over. */
export async function runCallers(
  { scene, quiet }: LoadContext,
  count: number,
  step: (caller: Caller) => Promise<void>,
): Promise<void> {
  const callers = Array.from({ length: count }, (_, index) => {
    const name = `${scene.name}#${scene.start}/${index}`;
    return createCaller(name, scene.seed, quiet);
  });
  await Promise.all(
    callers.map(async (caller) => {
      while (!quiet.aborted) await step(caller);
    }),
  );
}

export function createCaller(name: string, seed: number, quiet: AbortSignal): Caller {
  const random = createSeeded(seed ^ hash(name));
  return {
    name,
    random,
    async pause(minMs, maxMs) {
      await wait(random.between(minMs, maxMs), undefined, { signal: quiet }).catch(() => {});
    },
    chance: (share) => random.fraction() < share,
    oneOf: (items) => items[Math.floor(random.fraction() * items.length)]!,
  };
}

const ANSWERED_AGAIN = 10;

/** What to ask again in peace: everything whose answer is unknown, and one in ten of the others. */
export function toSettle<Asked>(
  operations: readonly Operation<Asked>[],
  keyOf: (asked: Asked) => string,
): Map<string, Asked> {
  const groups = [...groupBy(operations, ({ asked }) => keyOf(asked))];
  const chosen = groups.filter(
    ([, own], index) => !own.some(({ type }) => type === "ok") || index % ANSWERED_AGAIN === 0,
  );
  return new Map(chosen.map(([key, own]) => [key, own[0]!.asked]));
}
