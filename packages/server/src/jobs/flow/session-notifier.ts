import * as z from "zod";
import type { Clock } from "../../kernel/clock.ts";
import { instanceOf } from "../../membership/owner-lookup.ts";
import type { HotStore } from "../../store/hot-store.ts";
import type { Links } from "../memory/connections.ts";

/** Says things to sessions that are nice to know: states and progress. A result goes another, surer way. */
export interface Telling {
  start(): void;
  tell(sessionId: string, frame: string): void;
}

/** How long a session is believed to be where it was found. */
const OWNER_TRUST_MS = 2_000;
const OWNERS_MAX = 10_000;

const Note = z.object({ s: z.string(), m: z.string() });

/**
 * To a session of another instance by Pub/Sub: in order, quick, and lost when nobody hears it. A session that must
 * know asks for the job, or waits for its result.
 */
export function createTelling(options: {
  hot: HotStore;
  instanceId: string;
  clock: Clock;
  links: Links;
  onError: (error: unknown) => void;
}): Telling {
  const { hot, instanceId, clock, links, onError } = options;
  const owners = new Map<string, { to: Promise<string | undefined>; untilMs: number }>();
  const channelOf = (instance: string) => `${hot.prefix}:tell:${instance}`;

  function ownerOf(sessionId: string): Promise<string | undefined> {
    const nowMs = clock.monotonicMs();
    const known = owners.get(sessionId);
    if (known && known.untilMs > nowMs) return known.to;
    if (owners.size >= OWNERS_MAX) owners.clear();
    const to = instanceOf(hot, { session_id: sessionId }, instanceId);
    owners.set(sessionId, { to, untilMs: nowMs + OWNER_TRUST_MS });
    return to;
  }

  async function publish(sessionId: string, frame: string): Promise<void> {
    const owner = await ownerOf(sessionId);
    if (owner === undefined || owner === instanceId) return;
    await hot.publish(channelOf(owner), JSON.stringify({ s: sessionId, m: frame }));
  }

  function hear(text: string): void {
    const note = Note.safeParse(JSON.parse(text));
    if (note.success) links.session(note.data.s)?.link.sendText(note.data.m);
  }

  return {
    start() {
      if (hot.kind !== "memory") hot.subscribe(channelOf(instanceId), hear).catch(onError);
    },
    tell(sessionId, frame) {
      const session = links.session(sessionId);
      if (session) session.link.sendText(frame);
      // In memory there is no other instance.
      else if (hot.kind !== "memory") publish(sessionId, frame).catch(onError);
    },
  };
}
