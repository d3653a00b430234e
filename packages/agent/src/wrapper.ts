import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";

/** What stands in a wrapper for directories of the deployment that it starts. */
export const WRAPPER_PLACES = ["{data_dir}", "{packages_dir}", "{work_dir}"] as const;

export const knowsPlaces = (word: string): boolean =>
  (word.match(/\{[a-z_]*\}/g) ?? []).every((place) => WRAPPER_PLACES.some((one) => one === place));

/**
 * Splits a command prefix into words, without a shell: white space separates, quotes and backslashes keep together.
 * `undefined`: a quote is not closed, or there is no word.
 */
export function parseWords(text: string): string[] | undefined {
  const WORD = /\s*((?:[^\s"'\\]|\\.|"(?:[^"\\]|\\.)*"|'[^']*')+)\s*/gsy;
  const words: string[] = [];
  while (WORD.lastIndex < text.length) {
    const found = WORD.exec(text)?.[1];
    if (found === undefined) return undefined;
    words.push(unquoted(found));
  }
  return words.length > 0 ? words : undefined;
}

const unquoted = (word: string): string =>
  word.replace(/\\(.)|"((?:[^"\\]|\\.)*)"|'([^']*)'/gs, (_, escaped, double, single) =>
    double === undefined ? (escaped ?? single) : double.replace(/\\(["\\])/g, "$1"),
  );

/**
 * The wrapper with its program as an absolute path, found in the agent's own PATH: that of a deployment could name another
 * program. Throws when there is none.
 */
export function resolveWrapper(words: readonly string[], path = process.env.PATH): string[] {
  const [name = "", ...rest] = words;
  const candidates = name.includes("/")
    ? [name]
    : (path ?? "").split(delimiter).map((directory) => join(directory, name));
  const file = candidates.find(isExecutable);
  if (file === undefined || !file.startsWith("/"))
    throw new Error(
      `NODE_UNIT_WRAPPER begins with ${JSON.stringify(name)}, which is no program in PATH and no absolute path`,
    );
  return [file, ...rest];
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
