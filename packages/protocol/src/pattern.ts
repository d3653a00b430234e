import { RE2JS } from "re2js";
import { type MatchWhole, PATTERN_LENGTH_MAX } from "./eligibility.ts";

// Patterns come from other machines, which could make a backtracking engine run without end. RE2 matches in time linear
// in the text. An entry of its own (`@tenure/protocol/pattern`), so that browsers and SDK clients do not load RE2.

/**
 * Instructions of a compiled pattern: matching costs at most this many steps for each character of the text. Any
 * pattern without counted repetition stays below it, because its length is limited.
 */
const PROGRAM_MAX = 1_500;
/** What `estimatedSize` may be at most. Only a rough sieve: it keeps compiling cheap. */
const ESTIMATE_MAX = 4 * PROGRAM_MAX;
const CACHED_PATTERNS_MAX = 1_000;
const CACHED_INSTRUCTIONS_MAX = 200_000;
const CACHED_ANSWERS_MAX = 100_000;

interface Compiled {
  /** Absent when there is a problem. */
  program?: RE2JS;
  problem?: string;
  /** Of the program, in instructions. */
  size: number;
}

interface Cached extends Compiled {
  answers: Map<string, boolean>;
}

/** Oldest first. Bounded by number and by size, since a node may register with a new pattern every time. */
const cache = new Map<string, Cached>();
let cachedInstructions = 0;
let cachedAnswers = 0;

/** Whether the whole of `text` matches. A pattern that cannot be read matches nothing. */
export const matchWhole: MatchWhole = (pattern, text) => {
  const { program, answers } = cached(pattern);
  if (!program) return false;
  const known = answers.get(text);
  if (known !== undefined) return known;
  if (cachedAnswers >= CACHED_ANSWERS_MAX) forgetAnswers();
  // Not `testExact`: its automaton may grow to 8 MiB for each pattern.
  const isMatch = program.matcher(text).matches();
  answers.set(text, isMatch);
  cachedAnswers += 1;
  return isMatch;
};

/** What is wrong with a pattern, as the end of a sentence that begins with its name; `undefined` = nothing. */
export function patternProblem(pattern: string): string | undefined {
  return cached(pattern).problem;
}

function cached(pattern: string): Cached {
  const known = cache.get(pattern);
  if (known) return known;
  const made: Cached = { ...compile(pattern), answers: new Map<string, boolean>() };
  cache.set(pattern, made);
  cachedInstructions += made.size;
  for (const [oldest, { size, answers }] of cache) {
    if (cache.size <= CACHED_PATTERNS_MAX && cachedInstructions <= CACHED_INSTRUCTIONS_MAX) break;
    cache.delete(oldest);
    cachedInstructions -= size;
    cachedAnswers -= answers.size;
  }
  return made;
}

function forgetAnswers(): void {
  for (const { answers } of cache.values()) answers.clear();
  cachedAnswers = 0;
}

/** No problem repeats the pattern: it may be a secret in the wrong variable. */
function compile(pattern: string): Compiled {
  if (pattern.length > PATTERN_LENGTH_MAX)
    return { problem: `must have at most ${PATTERN_LENGTH_MAX} characters`, size: 0 };
  const tooLarge = { problem: "must have fewer or smaller counted repetitions", size: 0 };
  if (estimatedSize(pattern) > ESTIMATE_MAX) return tooLarge;
  try {
    const program = RE2JS.compile(pattern, RE2JS.DISABLE_UNICODE_GROUPS);
    const size = program.programSize();
    return size > PROGRAM_MAX ? tooLarge : { program, size };
  } catch (error) {
    if (/repeat count|too large/.test((error as Error).message)) return tooLarge;
    const problem =
      "must be a regular expression in RE2 syntax, which has no lookahead, lookbehind or backreference";
    return { problem, size: 0 };
  }
}

/**
 * At least half of the instructions that a pattern becomes. Only counted repetitions make it longer: that of one
 * character adds to its length, that of a group may multiply everything.
 */
function estimatedSize(pattern: string): number {
  let length = pattern.length;
  let factor = 1;
  for (const [, before, least, most] of pattern.matchAll(/(.)\{(\d+)(?:,(\d*))?\}/gs)) {
    const count = Number(most || least);
    if (before === ")") factor *= Math.max(1, count);
    else length += count;
  }
  return length * factor;
}
