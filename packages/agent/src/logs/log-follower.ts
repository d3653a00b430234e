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

/**
 * A chunk at a time and a pause after each: lines that come in one by one are sent together, and a child that writes
 * 100 MB a second is followed at 1.3 MB/s. Nobody reads faster, and heartbeats share the socket.
 */
const CHUNK_JSON_BYTES_MAX = 64 * 1024;
const PAUSE_MS = 50;
const SKIPPED = "[tenure] lines were rotated away before they could be read";

/** Reads on whenever something was written, until the signal. The files are the only buffer. */
export async function followLog(
  { directory, from, bell }: { directory: string; from: LogPlace; bell: Bell },
  { hear, signal }: LogFollower,
): Promise<void> {
  signal.addEventListener("abort", bell.ring, { once: true });
  let next = from;
  while (!signal.aborted) {
    const block = await readForward(directory, next, {
      linesMax: LOG_LINES_MAX - 1, // and the one that may say that lines are missing
      jsonBytesMax: CHUNK_JSON_BYTES_MAX,
    });
    if (signal.aborted) break;
    const lines = block.isSkipping ? [SKIPPED, ...block.lines] : block.lines;
    if (lines.length > 0) await hear({ lines, next: formatPlace(block.next) });
    else await bell.rung();
    await wait(PAUSE_MS, undefined, { ref: false });
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
