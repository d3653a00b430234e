import { accessSync, constants } from "node:fs";
import { closest, distance } from "fastest-levenshtein";
import * as z from "zod";

export function wholeNumber({ min, max }: { min: number; max: number }) {
  const must = `must be a whole number from ${min} to ${max}`;
  return z
    .string(must)
    .regex(/^\d+$/, must)
    .transform(Number)
    .refine((value) => value >= min && value <= max, must);
}

export function weight() {
  const must = "must be a number from 0 to 1000000, such as 1 or 0.5";
  return z
    .string(must)
    .regex(/^\d+(\.\d+)?$/, must)
    .transform(Number)
    .refine((value) => value <= 1_000_000, must);
}

export function text({ lengthMax }: { lengthMax: number }) {
  return z.string().max(lengthMax, `must have at most ${lengthMax} characters`);
}

/** The path of a file that this user can read. */
export function readableFile() {
  return text({ lengthMax: 4096 }).refine(isReadable, "names a file that cannot be read");
}

function isReadable(path: string): boolean {
  try {
    accessSync(path, constants.R_OK);
    return true;
  } catch {
    return false;
  }
}

export function isHostUrl(url: string): boolean {
  return /^(https?|wss?):\/\//.test(url) && URL.canParse(url);
}

/** Suggests the closest candidate if at most a third of the letters differ: a wrong suggestion is worse than none. */
export function didYouMean(word: string, candidates: readonly string[]): string {
  const candidate = closest(word, candidates);
  const mistakesMax = Math.max(2, Math.floor(word.length / 3));
  return distance(word, candidate) <= mistakesMax ? `; did you mean ${candidate}?` : "";
}
