import { SSE_TYPE } from "@tenure/protocol";
import type { FastifyReply } from "fastify";

/** An answer of server-sent events. */
export interface EventStream {
  /** Writes whole events (`eventText`), or bytes of another instance's stream. */
  write(text: string | Uint8Array): void;
  end(): void;
}

const KEEP_ALIVE_MS = 15_000;

/** One event as text: rendered once, written to many. */
export const eventText = (data: unknown, event?: string): string =>
  `${event === undefined ? "" : `event: ${event}\n`}data: ${JSON.stringify(data)}\n\n`;

/** Calls `then` when the connection is closed, at once if it closed before the handler began. */
export function whenClosed({ raw }: FastifyReply, then: () => void): void {
  if (raw.destroyed) then();
  else raw.once("close", then);
}

/**
 * Answers with server-sent events, beginning with `opening` (a comment or `retry`). A reader that is more than
 * `unsentBytesMax` behind is disconnected. `keepAlive` is false for a relayed stream: a comment could split an event of it.
 */
export function openEventStream(
  reply: FastifyReply,
  {
    opening,
    unsentBytesMax,
    keepAlive = true,
  }: { opening: string; unsentBytesMax: number; keepAlive?: boolean },
): EventStream {
  const { raw } = reply;
  reply.hijack();
  raw.writeHead(200, {
    "content-type": SSE_TYPE,
    "cache-control": "no-store",
    "x-accel-buffering": "no",
  });
  raw.write(`${opening}\n\n`);

  function write(text: string | Uint8Array): void {
    if (raw.writableLength > unsentBytesMax) raw.destroy();
    else raw.write(text);
  }

  if (keepAlive && !raw.destroyed) {
    const timer = setInterval(() => write(": keep-alive\n\n"), KEEP_ALIVE_MS);
    timer.unref();
    raw.once("close", () => clearInterval(timer));
  }
  return { write, end: () => raw.end() };
}
