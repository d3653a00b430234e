import { ROUTES, SSE_TYPE, type StreamItem } from "@tenure/protocol";
import type { FastifyReply } from "fastify";
import { type Served, serve } from "./route.ts";

export type Topic = StreamItem["topic"];

export interface Change {
  topic: Topic;
  op: "changed" | "removed";
  id: string;
  item?: unknown;
}

export interface StreamHub {
  publish(change: Change): void;
  isFollowed(): boolean;
  readonly routes: Served[];
  close(): void;
}

const KEEP_ALIVE_MS = 15_000;
/** A reader further behind than this is sent away; it reads the lists again and follows anew. */
const UNSENT_BYTES_MAX = 1_048_576;

/** `/stream`: every change as a server-sent event, to everybody who follows. */
export function createStream({ wallMs }: { wallMs: () => number }): StreamHub {
  const followers = new Set<FastifyReply>();
  const keepAlive = setInterval(() => write(": still here\n\n"), KEEP_ALIVE_MS);
  keepAlive.unref();

  function write(text: string): void {
    for (const { raw } of followers) {
      if (raw.writableLength > UNSENT_BYTES_MAX) raw.destroy();
      else raw.write(text);
    }
  }

  return {
    isFollowed: () => followers.size > 0,
    publish(change) {
      if (followers.size === 0) return;
      const item: StreamItem = { ...change, at: new Date(wallMs()).toISOString() };
      write(`event: ${change.topic}\ndata: ${JSON.stringify(item)}\n\n`);
    },
    routes: [
      serve(ROUTES.openStream, async ({ reply }) => {
        reply.hijack();
        reply.raw.writeHead(200, {
          "content-type": SSE_TYPE,
          "cache-control": "no-store",
          "x-accel-buffering": "no",
        });
        reply.raw.write("retry: 2000\n\n");
        followers.add(reply);
        reply.raw.on("close", () => followers.delete(reply));
        return undefined as never;
      }),
    ],
    close() {
      clearInterval(keepAlive);
      for (const { raw } of followers) raw.end();
    },
  };
}
