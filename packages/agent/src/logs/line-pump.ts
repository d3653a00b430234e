import type { Readable } from "node:stream";

/** Longer lines become several. A child that never ends its line must not fill memory. */
export const LINE_BYTES_MAX = 16 * 1024;

const LINE_BREAK = 10;
const BREAK = Buffer.from("\n");

/**
 * Passes on what a child says, in whole lines: two streams of one child go to one file, and must not cut each other's
 * lines. Reads on only when the lines have been taken, so that the child waits, and not its output in our memory.
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
    // The pipe broke: the child is gone, and what it has said until then is all there is.
  }
  if (restBytes > 0) await take(Buffer.concat([...rest, BREAK]));
}
