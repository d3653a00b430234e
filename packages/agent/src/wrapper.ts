import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";

/** The placeholders in a wrapper for directories of the deployment. */
export const WRAPPER_PLACES = ["{data_dir}", "{packages_dir}", "{work_dir}"] as const;

export const knowsPlaces = (word: string): boolean =>
  (word.match(/\{[a-z_]*\}/g) ?? []).every((place) => WRAPPER_PLACES.some((one) => one === place));

/**
 * Splits a command prefix into words without a shell: white space separates, quotes and backslashes escape. Returns
 * `undefined` if a quote is not closed or there is no word.
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
 * Returns the wrapper with the absolute path of its program, found in the agent's own PATH: the PATH of a deployment could
 * name another program. Throws when there is none.
 */
export function resolveWrapper(words: readonly string[], path = process.env.PATH): string[] {
  const [name = "", ...rest] = words;
  const candidates = name.includes("/")
    ? [name]
    : (path ?? "").split(delimiter).map((directory) => join(directory, name));
  const file = candidates.find(isExecutable);
  if (file === undefined || !file.startsWith("/"))
    throw new Error(
      `NODE_UNIT_WRAPPER must begin with a program in PATH or an absolute path, instead got ${JSON.stringify(name)}`,
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
