import { createContext, Script } from "node:vm";
import type { MatchWhole } from "@tenure/protocol";

const MATCH_LIMIT_MS = 20;
const REMEMBERED_MAX = 10_000;
/** A pattern that took too long is tried again after so long: the machine may have been busy. */
const REST_MS = 60_000;

/**
 * Matches a node's pattern against a package's name, for at most a moment. The pattern is another machine's:
 * one that takes for ever to fail would stop this whole process. Taking too long twice counts as no match for a minute;
 * once may be a busy machine.
 */
export function createBoundedMatch(
  limitMs: number = MATCH_LIMIT_MS,
  nowMs: () => number = () => performance.now(),
): MatchWhole {
  const sandbox = createContext(Object.create(null), {
    codeGeneration: { strings: false, wasm: false },
  });
  const script = new Script("new RegExp(pattern).test(text)");
  const remembered = new Map<string, { matches: boolean; untilMs: number }>();

  return (pattern, text) => {
    const key = JSON.stringify([pattern, text]);
    const known = remembered.get(key);
    if (known && nowMs() < known.untilMs) return known.matches;
    if (remembered.size >= REMEMBERED_MAX) remembered.clear();
    const matches = attempt(pattern, text) ?? attempt(pattern, text);
    const untilMs = matches === undefined ? nowMs() + REST_MS : Number.POSITIVE_INFINITY;
    remembered.set(key, { matches: matches ?? false, untilMs });
    return matches ?? false;
  };

  /** `undefined`: it took too long. */
  function attempt(pattern: string, text: string): boolean | undefined {
    try {
      Object.assign(sandbox, { pattern: `^(?:${pattern})$`, text });
      return script.runInContext(sandbox, { timeout: limitMs }) === true;
    } catch (error) {
      const { code } = error as { code?: string };
      return code === "ERR_SCRIPT_EXECUTION_TIMEOUT" ? undefined : false; // or it is no pattern at all
    }
  }
}
