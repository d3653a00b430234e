import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { scratchDirectory } from "../scratch.ts";

/** When each term of a deployment was alive, as its own process wrote it down. */
export interface Beats {
  /** A command that writes down its term and the time, many times a second. */
  command(name: string): string;
  /** First and last moment of each term, by the machine's clock. */
  terms(name: string): Term[];
}

export interface Term {
  term: number;
  firstMs: number;
  lastMs: number;
}

const BEAT_SECONDS = 0.05;

export function createBeats(): Beats {
  const directory = scratchDirectory("beats");
  const fileOf = (name: string) => join(directory, name);
  return {
    command: (name) =>
      `while :; do echo "$TENURE_FENCING_TOKEN $(date +%s%3N)" >> ${fileOf(name)}; sleep ${BEAT_SECONDS}; done`,
    terms(name) {
      const terms = new Map<number, Term>();
      if (!existsSync(fileOf(name))) return [];
      for (const line of readFileSync(fileOf(name), "utf8").split("\n")) {
        const [term, atMs] = line.split(" ").map(Number);
        if (term === undefined || atMs === undefined) continue;
        const known = terms.get(term) ?? { term, firstMs: atMs, lastMs: atMs };
        known.lastMs = Math.max(known.lastMs, atMs);
        terms.set(term, known);
      }
      return [...terms.values()].sort((a, b) => a.term - b.term);
    },
  };
}

/** How long the newest two terms were both alive; negative: how long neither was. */
export function overlapMs(terms: readonly Term[]): number {
  const [former, newest] = terms.slice(-2);
  if (!former || !newest) throw new Error("there were no two terms");
  return former.lastMs - newest.firstMs;
}
