import { closest, distance } from "fastest-levenshtein";

/** All problems of a configuration at once, so that one restart fixes them all. */
export class ConfigError extends Error {
  override readonly name = "ConfigError";
  readonly problems: readonly string[];

  constructor(problems: readonly string[]) {
    super(
      problems.length === 1
        ? `The configuration has a problem: ${problems[0]}`
        : `The configuration has ${problems.length} problems:\n${problems.map((problem) => `  - ${problem}`).join("\n")}`,
    );
    this.problems = problems;
  }
}

/** `; did you mean …?`, or nothing when no candidate is near enough to be meant. */
export function didYouMean(
  word: string,
  candidates: readonly string[],
  show: (candidate: string) => string = (candidate) => candidate,
): string {
  const candidate = nearest(word, candidates);
  return candidate === undefined ? "" : `; did you mean ${show(candidate)}?`;
}

/**
 * A third of the letters may be wrong: `prot` still finds `port`, and `foo` finds nothing. A wrong suggestion
 * is worse than none, because it is the first thing that gets tried.
 */
function nearest(word: string, candidates: readonly string[]): string | undefined {
  if (word === "" || candidates.length === 0) return undefined;
  const candidate = closest(word, candidates);
  const mistakesMax = Math.max(2, Math.floor(word.length / 3));
  return distance(word, candidate) <= mistakesMax ? candidate : undefined;
}
