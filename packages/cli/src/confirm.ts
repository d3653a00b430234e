import { createInterface } from "node:readline/promises";

/** Asks on the terminal; false where there is none, so that a script never waits for an answer. */
export async function confirmed(what: string): Promise<boolean> {
  if (!process.stdin.isTTY || !process.stderr.isTTY) return false;
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  try {
    return /^y(es)?$/i.test((await terminal.question(`${what}. Go on? [y/N] `)).trim());
  } finally {
    terminal.close();
  }
}
