import { setTimeout as sleep } from "node:timers/promises";
import type { LogLines } from "@tenure/protocol";
import { LOG_LINES_MAX } from "@tenure/protocol";
import { formatPosition, type LogPosition } from "./log-files.ts";
import { readForward } from "./log-reader.ts";

export interface LogFollower {
  /** Takes lines. The next ones come when the promise is fulfilled, so a slow follower lags and costs no memory. */
  onLines(chunk: LogLines): void | Promise<void>;
  signal: AbortSignal;
}

/** Wakes one reader. A notification before `wait` is kept, so none is missed between a read and a wait. */
export interface Notifier {
  notify(): void;
  wait(): Promise<void>;
}

/**
 * One chunk at a time and a pause after each: single lines are sent together, and a child that writes 100 MB/s is followed
 * at 1.3 MB/s. No reader is faster, and heartbeats share the socket.
 */
const CHUNK_JSON_BYTES_MAX = 64 * 1024;
const PAUSE_MS = 50;
const SKIPPED = "[tenure] lines were rotated away before they could be read";

/** Reads on after every write, until the signal. The files are the only buffer. */
export async function followLog(
  { directory, from, written }: { directory: string; from: LogPosition; written: Notifier },
  { onLines, signal }: LogFollower,
): Promise<void> {
  signal.addEventListener("abort", written.notify, { once: true });
  let next = from;
  while (!signal.aborted) {
    const block = await readForward(directory, next, {
      linesMax: LOG_LINES_MAX - 1, // One more may be the note on missing lines.
      jsonBytesMax: CHUNK_JSON_BYTES_MAX,
    });
    if (signal.aborted) break;
    const lines = block.isSkipping ? [SKIPPED, ...block.lines] : block.lines;
    if (lines.length > 0) await onLines({ lines, next: formatPosition(block.next) });
    else await written.wait();
    await sleep(PAUSE_MS, undefined, { ref: false });
    next = block.next;
  }
  signal.removeEventListener("abort", written.notify);
}

export function createNotifier(): Notifier {
  let isNotified = false;
  let wake: (() => void) | undefined;
  return {
    notify() {
      isNotified = true;
      wake?.();
    },
    wait: () =>
      new Promise((resolve) => {
        wake = () => {
          wake = undefined;
          isNotified = false;
          resolve();
        };
        if (isNotified) wake();
      }),
  };
}
