import { createInterface } from "node:readline/promises";

/** Asks on the terminal. Returns false without a terminal, so that a script never blocks. */
export async function confirmed(question: string): Promise<boolean> {
  if (!process.stdin.isTTY || !process.stderr.isTTY) return false;
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  try {
    return /^y(es)?$/i.test((await terminal.question(`${question}. Continue? [y/N] `)).trim());
  } finally {
    terminal.close();
  }
}
