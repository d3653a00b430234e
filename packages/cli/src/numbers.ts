import { InvalidArgumentError } from "commander";

/** Parses a whole number of a flag or an argument. */
export function wholeNumber(text: string): number {
  if (/^\d{1,16}$/.test(text) && Number.isSafeInteger(Number(text))) return Number(text);
  throw new InvalidArgumentError("must be a whole number");
}

/** Parses a number of things: at least 1, at most 999,999. */
export function count(text: string): number {
  if (!/^[1-9]\d{0,5}$/.test(text))
    throw new InvalidArgumentError("must be a whole number of at least 1");
  return Number(text);
}
