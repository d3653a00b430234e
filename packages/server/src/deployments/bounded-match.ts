import { createContext, Script } from "node:vm";
import type { MatchWhole } from "@tenure/protocol";

const MATCH_LIMIT_MS = 20;
const REMEMBERED_MAX = 10_000;

/**
 * Matches a node's pattern against a package's name, for at most a moment. The pattern is another machine's:
 * one that takes for ever to fail would stop this whole process. Taking too long counts as no match.
 */
export function createBoundedMatch(limitMs: number = MATCH_LIMIT_MS): MatchWhole {
  const sandbox = createContext(Object.create(null), {
    codeGeneration: { strings: false, wasm: false },
  });
  const script = new Script("new RegExp(pattern).test(text)");
  const remembered = new Map<string, boolean>();

  return (pattern, text) => {
    const key = JSON.stringify([pattern, text]);
    const known = remembered.get(key);
    if (known !== undefined) return known;
    if (remembered.size >= REMEMBERED_MAX) remembered.clear();
    const matches = attempt(pattern, text);
    remembered.set(key, matches);
    return matches;
  };

  function attempt(pattern: string, text: string): boolean {
    try {
      Object.assign(sandbox, { pattern: `^(?:${pattern})$`, text });
      return script.runInContext(sandbox, { timeout: limitMs }) === true;
    } catch {
      return false; // no pattern at all, or one without an end
    }
  }
}
