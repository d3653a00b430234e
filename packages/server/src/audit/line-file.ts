import { closeSync, openSync } from "node:fs";
import { appendFile } from "node:fs/promises";

export interface LineFile {
  write(line: string): void;
  /** Resolves once all lines are in the file or were passed to `onLost`. */
  flush(): Promise<void>;
}

/** Lines that may wait for the disk. */
const WAITING_MAX = 10_000;

/**
 * Appends lines to a file that only its owner can read. The path is opened for each write, so that logrotate can move the
 * file away without a signal. Nothing is deleted or truncated here.
 */
export function openLineFile(
  path: string,
  onLost: (lines: string[], error: unknown) => void,
): LineFile {
  let waiting: string[] = [];
  let writing: Promise<void> | undefined;

  async function writeAll(): Promise<void> {
    while (waiting.length > 0) {
      const lines = waiting;
      waiting = [];
      const text = lines.map((line) => `${line}\n`).join("");
      await appendFile(path, text, { mode: 0o600 }).catch((error: unknown) => onLost(lines, error));
    }
    writing = undefined;
  }

  return {
    write(line) {
      if (waiting.length >= WAITING_MAX)
        return onLost([line], new Error(`${WAITING_MAX} lines wait for the disk`));
      waiting.push(line);
      writing ??= writeAll();
    },
    flush: async () => writing,
  };
}

/** Creates the file of `[audit] file`, so that one that cannot be written fails the start and not the first entry. */
export function requireAuditFile(path: string): void {
  if (path === "") return;
  try {
    closeSync(openSync(path, "a", 0o600));
  } catch (error) {
    throw new Error(`audit.file cannot be written: ${(error as Error).message}`);
  }
}
