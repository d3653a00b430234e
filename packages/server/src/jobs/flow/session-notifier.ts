import type { JobState } from "@tenure/protocol";
import * as z from "zod";
import type { Clock } from "../../kernel/clock.ts";
import { instanceOf } from "../../membership/owner-lookup.ts";
import type { HotStore } from "../../store/hot-store.ts";
import { updateFrame } from "../api/frames.ts";
import type { TrackedJob } from "../job.ts";
import type { Connections, SessionConnection } from "../memory/connections.ts";

/** Sends states and progress to sessions, best effort. Results take another, reliable path. */
export interface SessionNotifier {
  start(): void;
  send(sessionId: string, frame: string): void;
  /** Sends a state of the job to its session, unless the session wants states only of other jobs. */
  update(job: Updated, state: JobState): void;
}

type Updated = Pick<TrackedJob, "jobId" | "requestId" | "sessionId" | "attemptId" | "nodeId">;

/** How long the owner of a session is cached. */
const OWNER_TRUST_MS = 2_000;
const OWNERS_MAX = 10_000;

/** `r`: the request of a `job_update`. An instance that knows no `updates_on_request` leaves it out. */
const Note = z.object({ s: z.string(), m: z.string(), r: z.string().optional() });

/**
 * A frame for a session of another instance goes by Pub/Sub: in order, fast, and lost if that instance is not subscribed. A
 * session that must know reads the job, or waits for its result.
 */
export function createSessionNotifier(options: {
  hot: HotStore;
  instanceId: string;
  clock: Clock;
  connections: Connections;
  onError: (error: unknown) => void;
}): SessionNotifier {
  const { hot, instanceId, clock, connections, onError } = options;
  const owners = new Map<string, { to: Promise<string | undefined>; untilMs: number }>();
  const channelOf = (instance: string) => `${hot.prefix}:tell:${instance}`;

  function ownerOf(sessionId: string): Promise<string | undefined> {
    const nowMs = clock.monotonicMs();
    const known = owners.get(sessionId);
    if (known && known.untilMs > nowMs) return known.to;
    if (owners.size >= OWNERS_MAX) owners.clear();
    const to = instanceOf(hot, { session_id: sessionId }, instanceId);
    owners.set(sessionId, { to, untilMs: nowMs + OWNER_TRUST_MS });
    to.catch(() => owners.delete(sessionId));
    return to;
  }

  async function publish(sessionId: string, frame: string, requestId?: string): Promise<void> {
    const owner = await ownerOf(sessionId);
    if (owner === undefined || owner === instanceId) return;
    await hot.publish(channelOf(owner), JSON.stringify({ s: sessionId, m: frame, r: requestId }));
  }

  function receive(text: string): void {
    const note = Note.safeParse(JSON.parse(text));
    if (!note.success) return;
    const { s, m, r } = note.data;
    const link = connections.session(s)?.link;
    if (link && (r === undefined || wants(link, r))) link.sendText(m);
  }

  return {
    start() {
      if (hot.kind !== "memory") hot.subscribe(channelOf(instanceId), receive).catch(onError);
    },
    send(sessionId, frame) {
      const session = connections.session(sessionId);
      if (session) session.link.sendText(frame);
      // In memory there is no other instance.
      else if (hot.kind !== "memory") publish(sessionId, frame).catch(onError);
    },
    update({ jobId, requestId, sessionId, attemptId, nodeId }, state) {
      if (!sessionId) return;
      const link = connections.session(sessionId)?.link;
      if (link ? !wants(link, requestId) : hot.kind === "memory") return;
      const frame = updateFrame({ jobId, state, attemptId, nodeId });
      if (link) link.sendText(frame);
      else publish(sessionId, frame, requestId).catch(onError);
    },
  };
}

const wants = ({ updates }: SessionConnection["link"], requestId: string): boolean =>
  updates?.has(requestId) ?? true;
