import {
  type NodeView,
  ROUTES,
  type Role,
  SSE_TYPE,
  type StreamItem,
  sharesTenant,
} from "@tenure/protocol";
import type { FastifyReply } from "fastify";
import type { Scope } from "../../kernel/scope.ts";
import { type Served, serve } from "../route.ts";
import { eventShownTo } from "./events.ts";
import { shownNode } from "./nodes.ts";

export type Topic = StreamItem["topic"];

export interface Change {
  topic: Topic;
  op: "changed" | "removed";
  id: string;
  /** Who hears of it; empty = operators only. */
  tenants: readonly string[];
  item?: unknown;
}

export interface StreamHub {
  publish(change: Change): void;
  /** The scopes of those who follow, each once. */
  scopes(): Scope[];
  /** To those of this scope only, whatever the change is about. */
  publishTo(scope: Scope, change: Change): void;
  readonly routes: Served[];
  close(): void;
}

/** What decides which changes a follower hears of, and how much of them it sees. */
interface Audience {
  scope: Scope;
  role: Role;
}

const KEEP_ALIVE_MS = 15_000;
/** A reader further behind than this is sent away; it reads the lists again and follows anew. */
const UNSENT_BYTES_MAX = 1_048_576;

/** `/stream`: every change as a server-sent event, to everybody who follows. */
export function createStream({ wallMs }: { wallMs: () => number }): StreamHub {
  const followers = new Map<FastifyReply, Audience>();
  const keepAlive = setInterval(() => write(": still here\n\n", () => true), KEEP_ALIVE_MS);
  keepAlive.unref();

  function write(text: string, hears: (audience: Audience) => boolean): void {
    for (const [{ raw }, audience] of followers) {
      if (!hears(audience)) continue;
      if (raw.writableLength > UNSENT_BYTES_MAX) raw.destroy();
      else raw.write(text);
    }
  }

  function render({ tenants: _, ...change }: Change): string {
    const item: StreamItem = { ...change, at: new Date(wallMs()).toISOString() };
    return `event: ${change.topic}\ndata: ${JSON.stringify(item)}\n\n`;
  }

  /** Written once for all who see the same of it. */
  function publish(change: Change): void {
    for (const audience of once([...followers.values()], audienceKey)) {
      const { tenants, operates } = audience.scope;
      const isHeard = sharesTenant(change.tenants, tenants);
      if (!isHeard && !(operates && change.tenants.length === 0)) continue;
      const key = audienceKey(audience);
      write(
        render({ ...change, item: shownTo(audience, change) }),
        (follower) => audienceKey(follower) === key,
      );
    }
  }

  return {
    publish,
    scopes: () =>
      once(
        [...followers.values()].map(({ scope }) => scope),
        keyOf,
      ),
    publishTo: (scope, change) =>
      write(render(change), (follower) => keyOf(follower.scope) === keyOf(scope)),
    routes: [
      serve(ROUTES.openStream, async ({ reply, scope, principal: { role } }) => {
        reply.hijack();
        reply.raw.writeHead(200, {
          "content-type": SSE_TYPE,
          "cache-control": "no-store",
          "x-accel-buffering": "no",
        });
        reply.raw.write("retry: 2000\n\n");
        followers.set(reply, { scope, role });
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

const keyOf = ({ tenants, operates }: Scope): string => `${operates} ${tenants.join(" ")}`;
const audienceKey = ({ scope, role }: Audience): string => `${role} ${keyOf(scope)}`;

/** Of those with the same key the last. */
const once = <T>(all: readonly T[], key: (one: T) => string): T[] => [
  ...new Map(all.map((one) => [key(one), one])).values(),
];

function shownTo({ scope, role }: Audience, { topic, item }: Change): unknown {
  if (topic === "nodes" && item !== undefined) return shownNode(scope, item as NodeView);
  if (topic !== "events") return item;
  return eventShownTo({ role }, item as { details: Record<string, unknown> });
}
