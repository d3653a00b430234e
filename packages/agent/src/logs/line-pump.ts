import type { Readable } from "node:stream";

/** Longer lines are split, so that a child that never ends its line does not fill memory. */
export const LINE_BYTES_MAX = 16 * 1024;

const LINE_BREAK = 10;
const BREAK = Buffer.from("\n");

/**
 * Passes the output of a child on in whole lines: stdout and stderr go to one file, and must not split each other's lines.
 * Reads on only when the lines have been taken, so that a fast child waits instead of filling memory.
 */
export async function pumpLines(
  stream: Readable,
  take: (lines: Buffer) => Promise<void>,
): Promise<void> {
  let rest: Buffer[] = [];
  let restBytes = 0;
  try {
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      const end = chunk.lastIndexOf(LINE_BREAK) + 1;
      if (end > 0) {
        await take(Buffer.concat([...rest, chunk.subarray(0, end)]));
        rest = [];
        restBytes = 0;
      }
      if (end < chunk.length) rest.push(chunk.subarray(end));
      restBytes += chunk.length - end;
      if (restBytes < LINE_BYTES_MAX) continue;
      await take(Buffer.concat([...rest, BREAK]));
      rest = [];
      restBytes = 0;
    }
  } catch {
    // The pipe broke, so the child has ended; the lines until then are passed on.
  }
  if (restBytes > 0) await take(Buffer.concat([...rest, BREAK]));
}
