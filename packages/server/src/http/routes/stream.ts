import { type NodeView, ROUTES, type Role, type StreamItem, sharesTenant } from "@tenure/protocol";
import type { Scope } from "../../kernel/scope.ts";
import { type Served, serve } from "../route.ts";
import { type EventStream, eventText, openEventStream, whenClosed } from "../sse.ts";
import { eventShownTo } from "./events.ts";
import { shownNode } from "./nodes.ts";

export type Topic = StreamItem["topic"];

export interface Change {
  topic: Topic;
  op: "changed" | "removed";
  id: string;
  /** The tenants that may see it; empty = operators only. */
  tenants: readonly string[];
  item?: unknown;
}

export interface StreamHub {
  publish(change: Change): void;
  /** The scopes of the followers, each once. */
  scopes(): Scope[];
  /** Sends the change to the followers of exactly this scope. */
  publishTo(scope: Scope, change: Change): void;
  readonly routes: Served[];
  close(): void;
}

/** Decides which changes a follower receives, and which fields of them. */
interface Audience {
  scope: Scope;
  role: Role;
}

/** A reader further behind than this is disconnected. It reconnects and reads the lists again. */
const UNSENT_BYTES_MAX = 1_048_576;
const OPTIONS = { opening: "retry: 2000", unsentBytesMax: UNSENT_BYTES_MAX };

/** `/stream`: every change as a server-sent event, to all followers that may see it. */
export function createStream({ wallMs }: { wallMs: () => number }): StreamHub {
  const followers = new Map<EventStream, Audience>();

  function write(text: string, receives: (audience: Audience) => boolean): void {
    for (const [stream, audience] of followers) if (receives(audience)) stream.write(text);
  }

  function render({ tenants: _, ...change }: Change): string {
    const item: StreamItem = { ...change, at: new Date(wallMs()).toISOString() };
    return eventText(item, change.topic);
  }

  /** Renders the change once per audience. */
  function publish(change: Change): void {
    for (const audience of once([...followers.values()], audienceKey)) {
      const { tenants, operates } = audience.scope;
      const isVisible = sharesTenant(change.tenants, tenants);
      if (!isVisible && !(operates && change.tenants.length === 0)) continue;
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
        const stream = openEventStream(reply, OPTIONS);
        followers.set(stream, { scope, role });
        whenClosed(reply, () => followers.delete(stream));
        return undefined as never;
      }),
    ],
    close() {
      for (const stream of followers.keys()) stream.end();
    },
  };
}

const keyOf = ({ tenants, operates }: Scope): string => `${operates} ${tenants.join(" ")}`;
const audienceKey = ({ scope, role }: Audience): string => `${role} ${keyOf(scope)}`;

/** One item per key: the last. */
const once = <T>(all: readonly T[], key: (one: T) => string): T[] => [
  ...new Map(all.map((one) => [key(one), one])).values(),
];

function shownTo({ scope, role }: Audience, { topic, item }: Change): unknown {
  if (topic === "nodes" && item !== undefined) return shownNode(scope, item as NodeView);
  if (topic !== "events") return item;
  return eventShownTo({ role }, item as { details: Record<string, unknown> });
}
