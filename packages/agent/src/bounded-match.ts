import { createContext, Script } from "node:vm";
import type { MatchWhole } from "@tenure/protocol";
import { type Clock, systemClock } from "@tenure/sdk";

const MATCH_LIMIT_MS = 50;
const REMEMBERED_MAX = 10_000;
/** A busy machine may take the time away from a good pattern once or twice. */
const STRIKES_MAX = 3;
const REST_MS = 60_000;

/**
 * Matches a node's pattern against a package's name, for at most a moment. Patterns come from other machines: one
 * that takes for ever to fail would stop this agent, and with it its heartbeats. Taking too long counts as no
 * match, and a pattern that does so again and again is left alone for a minute, or a long list of packages
 * would cost the limit for each of them. (The server has its own: nothing but the protocol, which knows no
 * Node, is shared by both.)
 */
export function createBoundedMatch({
  limitMs = MATCH_LIMIT_MS,
  clock = systemClock,
}: {
  limitMs?: number;
  clock?: Clock;
} = {}): MatchWhole {
  const sandbox = createContext(Object.create(null), {
    codeGeneration: { strings: false, wasm: false },
  });
  const script = new Script("new RegExp(pattern).test(text)");
  const remembered = new Map<string, boolean>();
  const slow = new Map<string, { strikes: number; restsUntilMs: number }>();

  function attempt(pattern: string, text: string): boolean | "slow" {
    try {
      Object.assign(sandbox, { pattern: `^(?:${pattern})$`, text });
      return script.runInContext(sandbox, { timeout: limitMs }) === true;
    } catch (error) {
      const { code } = error as { code?: string };
      return code === "ERR_SCRIPT_EXECUTION_TIMEOUT" ? "slow" : false; // or it is no pattern at all
    }
  }

  function strike(pattern: string): void {
    const strikes = (slow.get(pattern)?.strikes ?? 0) + 1;
    const isOut = strikes >= STRIKES_MAX;
    if (slow.size >= REMEMBERED_MAX) slow.clear();
    slow.set(pattern, {
      strikes: isOut ? 0 : strikes,
      restsUntilMs: isOut ? clock.monotonicMs() + REST_MS : 0,
    });
  }

  return (pattern, text) => {
    const key = JSON.stringify([pattern, text]);
    const known = remembered.get(key);
    if (known !== undefined) return known;
    if ((slow.get(pattern)?.restsUntilMs ?? 0) > clock.monotonicMs()) return false;
    const matches = attempt(pattern, text);
    if (matches === "slow") {
      strike(pattern);
      return false;
    }
    if (remembered.size >= REMEMBERED_MAX) remembered.clear();
    remembered.set(key, matches);
    return matches;
  };
}
