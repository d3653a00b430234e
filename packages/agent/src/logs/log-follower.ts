import { setTimeout as wait } from "node:timers/promises";
import type { LogLines } from "@tenure/protocol";
import { LOG_LINES_MAX } from "@tenure/protocol";
import { formatPlace, type LogPlace } from "./log-files.ts";
import { readForward } from "./log-reader.ts";

export interface LogFollower {
  /** The next lines come when it has taken these: whoever is slow is behind, and costs no memory. */
  hear(chunk: LogLines): void | Promise<void>;
  signal: AbortSignal;
}

/** Wakes one reader. A ring that nobody waits for is remembered, so none is missed between a look and a wait. */
export interface Bell {
  ring(): void;
  rung(): Promise<void>;
}

const CHUNK_JSON_BYTES_MAX = 256 * 1024;
/** Lines that come in one by one are sent together; nobody reads faster than this. */
const GATHER_MS = 50;

/** Reads on whenever something was written, until the signal. The files are the only buffer. */
export async function followLog(
  { directory, from, bell }: { directory: string; from: LogPlace; bell: Bell },
  { hear, signal }: LogFollower,
): Promise<void> {
  signal.addEventListener("abort", bell.ring, { once: true });
  let next = from;
  while (!signal.aborted) {
    const block = await readForward(directory, next, {
      linesMax: LOG_LINES_MAX,
      jsonBytesMax: CHUNK_JSON_BYTES_MAX,
    });
    if (signal.aborted) break;
    if (block.lines.length > 0) await hear({ lines: block.lines, next: formatPlace(block.next) });
    else {
      await bell.rung();
      await wait(GATHER_MS, undefined, { ref: false });
    }
    next = block.next;
  }
  signal.removeEventListener("abort", bell.ring);
}

export function createBell(): Bell {
  let isRung = false;
  let wake: (() => void) | undefined;
  return {
    ring() {
      isRung = true;
      wake?.();
    },
    rung: () =>
      new Promise((resolve) => {
        wake = () => {
          wake = undefined;
          isRung = false;
          resolve();
        };
        if (isRung) wake();
      }),
  };
}
