import type { RecordedEvent } from "@tenure/testing/history";

/** An operation from its call to its end, as its caller saw it. */
export interface Operation<Asked = unknown, Answered = unknown> {
  process: string;
  f: string;
  asked: Asked;
  type: "ok" | "fail" | "info";
  /** Of an `ok`. */
  answered: Answered;
  startNs: number;
  /** Infinity for one whose end nobody knows: it may still take effect. */
  endNs: number;
}

/**
 * Pairs every call with its end. Each process does one thing at a time; one that was killed leaves a call without
 * an end, and that is `info`: it may have taken effect.
 */
export function operationsOf<Asked = unknown, Answered = unknown>(
  events: readonly RecordedEvent[],
  f: string,
): Operation<Asked, Answered>[] {
  const open = new Map<string, Operation<Asked, Answered>>();
  const operations: Operation<Asked, Answered>[] = [];
  for (const event of events) {
    if (event.f !== f) continue;
    const process = String(event.process);
    if (event.type === "invoke") {
      const operation: Operation<Asked, Answered> = {
        process,
        f,
        asked: event.value as Asked,
        type: "info",
        answered: undefined as Answered,
        startNs: event.time,
        endNs: Number.POSITIVE_INFINITY,
      };
      open.set(process, operation);
      operations.push(operation);
      continue;
    }
    const operation = open.get(process);
    if (!operation) continue;
    open.delete(process);
    operation.type = event.type;
    if (event.type === "ok") operation.answered = event.value as Answered;
    if (event.type !== "info") operation.endNs = event.time;
  }
  return operations;
}

/** At most so many are told: a broken protection breaks everything, and the first few say what. */
export const VIOLATIONS_MAX = 20;

export interface Violations {
  add(sentence: string): void;
  readonly all: string[];
}

export function createViolations(): Violations {
  const all: string[] = [];
  let more = 0;
  return {
    add(sentence) {
      if (all.length < VIOLATIONS_MAX) all.push(sentence);
      else more += 1;
    },
    get all() {
      return more > 0 ? [...all, `and ${more} more`] : all;
    },
  };
}

export function groupBy<T>(items: readonly T[], keyOf: (item: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const item of items) {
    const key = keyOf(item);
    const group = groups.get(key);
    if (group) group.push(item);
    else groups.set(key, [item]);
  }
  return groups;
}
