import { ROUTES, type Role, SSE_TYPE, type StreamItem } from "@tenure/protocol";
import type { FastifyReply } from "fastify";
import { eventShownTo } from "./events.ts";
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
  const followers = new Map<FastifyReply, Role>();
  const keepAlive = setInterval(() => write(() => ": still here\n\n"), KEEP_ALIVE_MS);
  keepAlive.unref();

  function write(textFor: (role: Role) => string): void {
    for (const [{ raw }, role] of followers) {
      if (raw.writableLength > UNSENT_BYTES_MAX) raw.destroy();
      else raw.write(textFor(role));
    }
  }

  return {
    isFollowed: () => followers.size > 0,
    publish(change) {
      if (followers.size === 0) return;
      const at = new Date(wallMs()).toISOString();
      const texts = new Map<Role, string>();
      write((role) => {
        const text = texts.get(role) ?? textOf(changeShownTo(role, change), at);
        texts.set(role, text);
        return text;
      });
    },
    routes: [
      serve(ROUTES.openStream, async ({ principal, reply }) => {
        reply.hijack();
        reply.raw.writeHead(200, {
          "content-type": SSE_TYPE,
          "cache-control": "no-store",
          "x-accel-buffering": "no",
        });
        reply.raw.write("retry: 2000\n\n");
        followers.set(reply, principal.role);
        reply.raw.on("close", () => followers.delete(reply));
        return undefined as never;
      }),
    ],
    close() {
      clearInterval(keepAlive);
      for (const { raw } of followers.keys()) raw.end();
    },
  };
}

function textOf(change: Change, at: string): string {
  const item: StreamItem = { ...change, at };
  return `event: ${change.topic}\ndata: ${JSON.stringify(item)}\n\n`;
}

function changeShownTo(role: Role, change: Change): Change {
  if (change.topic !== "events") return change;
  const item = change.item as { details: Record<string, unknown> };
  return { ...change, item: eventShownTo({ role }, item) };
}
