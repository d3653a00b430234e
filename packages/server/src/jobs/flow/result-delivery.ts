import { failpoint } from "#failpoint";
import { instanceOf } from "../../membership/owner-lookup.ts";
import { type Ending, evictedError, resultFrame, resultText } from "../api/frames.ts";
import type { JobsContext } from "../context.ts";
import type { SessionEnd } from "../memory/connections.ts";
import { createResultQueue, type ResultQueue } from "../memory/result-queue.ts";
import { readAttempts, readJob } from "../store/job-store.ts";
import { leaveDue } from "../store/recovery-index-store.ts";
import {
  ackUndelivered,
  addUndelivered,
  listUndelivered,
  UNDELIVERED_MAX,
} from "../store/undelivered-store.ts";

/** Brings results to sessions, wherever they are. */
export interface Results {
  /**
   * `out`: nobody needs to look at this job again. `stay`: it was sent on, and the index keeps it until it is
   * acknowledged.
   */
  deliver(ending: DeliveredEnding): Promise<"out" | "stay">;
  /** A result for a session connected here, by another instance's word. `absent`: there is nothing to tell. */
  bring(session: SessionEnd, jobId: string): Promise<"sent" | "absent">;
  /** The result of another session's job, for a session that asked for the same. Lost with the connection. */
  copy(session: SessionEnd, ending: Ending): void;
  acked(session: SessionEnd, jobId: string): void;
  /** It was sent to a session connected here, or waits for room to be sent, and is not acknowledged yet. */
  isAwaited(sessionId: string, jobId: string): boolean;
  /** After its owner was written: what came in while it was away. */
  sessionJoined(session: SessionEnd): Promise<void>;
  sessionLeft(session: SessionEnd): Promise<void>;
  /** Another session asked for the same job, or an HTTP caller waits: called once, when it has ended. */
  follow(jobId: string, hear: (ending: Ending) => void): () => void;
  /** Somebody ended it elsewhere. */
  endedElsewhere(jobId: string): Promise<void>;
}

export interface DeliveredEnding extends Ending {
  sessionId: string | undefined;
  originInstanceId: string;
  /** Instances where somebody else waits for it. */
  listeners: readonly string[];
  /** Somebody else began to deliver it, and may have put it into the session's undelivered set. */
  rescued?: boolean;
}

/** Sent to a session connected here, or waiting for room, and not acknowledged. Never holds the result itself. */
interface Unacked {
  /** It is in the session's undelivered set: another connection of the session will find it there. */
  kept: boolean;
  /** It may be there too, by somebody who stopped then. */
  rescued: boolean;
  /** The result of another session's job. */
  copy?: boolean;
  settle: (delivered: "out" | "stay") => void;
}

/** A client that never acknowledges costs this many entries. Above it the oldest move to its undelivered set. */
const UNACKED_MAX = 10_000;
const MOVED_AT_ONCE = 256;

type ResultsContext = Pick<
  JobsContext,
  "hot" | "instanceId" | "links" | "log" | "clock" | "ring" | "storeNowMs"
> & { settings: Pick<JobsContext["settings"], "retentionMs"> };

export function createResults(
  context: ResultsContext,
  { unackedMax = UNACKED_MAX }: { unackedMax?: number } = {},
): Results {
  const { hot, instanceId, links, settings, log } = context;
  // By connection, not by session: what the old socket did not acknowledge is not what the new one was sent.
  const unacked = new WeakMap<SessionEnd, ResultQueue<Unacked>>();
  const followers = new Map<string, Set<(ending: Ending) => void>>();

  async function deliver(ending: DeliveredEnding): Promise<"out" | "stay"> {
    tellFollowers(ending);
    ringListeners(ending);
    const { sessionId } = ending;
    if (!sessionId) return "out";
    const session = links.session(sessionId);
    return session ? hand(session, ending) : sendAfter(sessionId, ending);
  }

  /** Straight to the socket when it has room. Should it close before the acknowledgement, `sessionLeft` sees to it. */
  function hand(session: SessionEnd, ending: DeliveredEnding): Promise<"out" | "stay"> {
    const { jobId, rescued = false } = ending;
    const frame = resultFrame(ending);
    return new Promise((resolve) => {
      note(session, jobId, { kept: false, rescued, settle: resolve }).offer(jobId, frame);
    });
  }

  function queueOf(session: SessionEnd): ResultQueue<Unacked> {
    const former = unacked.get(session);
    if (former) return former;
    const queue = createResultQueue<Unacked>({
      link: session.link,
      clock: context.clock,
      async read(jobId) {
        const ending = await readEnding(jobId);
        return ending && resultFrame(ending);
      },
      absent: (_, { settle }) => settle("out"),
    });
    unacked.set(session, queue);
    return queue;
  }

  function note(session: SessionEnd, jobId: string, entry: Unacked): ResultQueue<Unacked> {
    const queue = queueOf(session);
    // The one before is about the same result: both callers are answered by the same acknowledgement.
    const former = queue.get(jobId);
    const settle = former
      ? (delivered: "out" | "stay") => {
          former.settle(delivered);
          entry.settle(delivered);
        }
      : entry.settle;
    queue.put(jobId, {
      kept: entry.kept || (former?.kept ?? false),
      rescued: entry.rescued || (former?.rescued ?? false),
      ...(entry.copy && { copy: true }),
      settle,
    });
    if (queue.size > unackedMax) void moveOldest(session, queue);
    return queue;
  }

  /** They are not sent again on this connection unless the client asks; a late acknowledgement finds them in the set. */
  async function moveOldest({ sessionId }: SessionEnd, queue: ResultQueue<Unacked>): Promise<void> {
    const oldest = queue.takeOldest(MOVED_AT_ONCE);
    const open = oldest.filter(([, { kept }]) => !kept);
    try {
      const jobIds = open.map(([jobId]) => jobId);
      if (jobIds.length > 0)
        await addUndelivered(hot, sessionId, jobIds, { keepMs: settings.retentionMs });
      for (const [, { settle }] of open) settle("out");
    } catch {
      for (const [, { settle }] of open) settle("stay");
    }
    const kept = oldest.filter(([, entry]) => entry.kept && !entry.copy);
    await Promise.all(kept.map(([jobId]) => leaveIfReleased(jobId))).catch(() => {});
  }

  /**
   * FINISHED is written, the set is written, then the owner is read. A session that connects writes its owner
   * before it reads the set: one of the two always sees the other.
   */
  async function sendAfter(
    sessionId: string,
    { jobId, attemptId }: Ending,
  ): Promise<"out" | "stay"> {
    await addUndelivered(hot, sessionId, [jobId], { keepMs: settings.retentionMs });
    await failpoint("result.after-undelivered");
    return ringOwner(sessionId, { jobId, attemptId });
  }

  async function ringOwner(
    sessionId: string,
    { jobId, attemptId }: { jobId: string; attemptId: number },
  ): Promise<"out" | "stay"> {
    const to = await instanceOf(hot, { session_id: sessionId }, instanceId);
    if (to === undefined) return "out"; // away: it will read the set when it comes
    if (to === instanceId) return bringHere(sessionId, jobId);
    await context.ring(to, {
      kind: "job.result",
      job_id: jobId,
      attempt_id: attemptId,
      session_id: sessionId,
      deadline_ms: context.storeNowMs() + settings.retentionMs,
    });
    return "stay";
  }

  /** It has come meanwhile. One that is just coming has not read the set yet, and will find it there. */
  async function bringHere(sessionId: string, jobId: string): Promise<"out" | "stay"> {
    const session = links.session(sessionId);
    return session && (await bring(session, jobId)) === "sent" ? "stay" : "out";
  }

  /** Callers over HTTP where it came in, and other sessions. Lost, they look for themselves, or ask again. */
  function ringListeners({ jobId, attemptId, ...ending }: DeliveredEnding): void {
    if (hot.kind === "memory") return;
    const origins = ending.sessionId ? [] : [ending.originInstanceId];
    const deadline_ms = context.storeNowMs() + RING_LIMIT_MS;
    const bell = { kind: "job.ended", job_id: jobId, attempt_id: attemptId, deadline_ms };
    for (const to of new Set([...origins, ...ending.listeners]))
      if (to !== instanceId) context.ring(to, bell).catch(() => {});
  }

  function tellFollowers(ending: Ending): void {
    const hearing = followers.get(ending.jobId);
    followers.delete(ending.jobId);
    for (const hear of hearing ?? []) hear(ending);
  }

  async function bring(session: SessionEnd, jobId: string): Promise<"sent" | "absent"> {
    const queue = queueOf(session);
    if (queue.isOnItsWay(jobId)) return "sent";
    if (!queue.hasRoom()) {
      noteKept(session, jobId).wait(jobId);
      return "sent";
    }
    const ending = await readEnding(jobId);
    if (!ending) {
      await ackUndelivered(hot, session.sessionId, [jobId]);
      return "absent";
    }
    noteKept(session, jobId).offer(jobId, resultFrame(ending));
    return "sent";
  }

  /** A result that is in the session's undelivered set, or may be. */
  function noteKept(session: SessionEnd, jobId: string): ResultQueue<Unacked> {
    const settle = (delivered: "out" | "stay") => {
      if (delivered === "out") void forget(session.sessionId, jobId);
    };
    return note(session, jobId, { kept: true, rescued: false, settle });
  }

  async function readEnding(jobId: string): Promise<Ending | undefined> {
    const record = await readJob(hot, jobId, { result: true });
    return record?.outcome && endingOf(record, record.outcome);
  }

  /** Whoever ended it may have stopped before its slot was free; then somebody must look at it once more. */
  async function leaveIfReleased(jobId: string): Promise<void> {
    const [now] = await readAttempts(hot, [{ jobId }]);
    if (now?.state !== "FINISHED") await leaveDue(hot, [jobId]);
  }

  /** Acknowledged. Should this fail, the result is sent and acknowledged once more. */
  async function forget(sessionId: string, jobId: string): Promise<void> {
    try {
      await Promise.all([ackUndelivered(hot, sessionId, [jobId]), leaveIfReleased(jobId)]);
    } catch (error) {
      log.debug({ event: "result.not-forgotten", jobId, error }, "will be acknowledged again");
    }
  }

  /** Sent over a former connection. Whether it was this session's at all, its own set tells. */
  async function ackedLate(sessionId: string, jobId: string): Promise<void> {
    const removed = await ackUndelivered(hot, sessionId, [jobId]).catch(() => 0);
    if (removed > 0) await leaveIfReleased(jobId).catch(() => {});
  }

  return {
    deliver,
    bring,
    copy(session, ending) {
      const entry = { kept: true, rescued: false, copy: true, settle: () => {} };
      note(session, ending.jobId, entry).offer(ending.jobId, resultFrame(ending));
    },
    acked(session, jobId) {
      const entry = unacked.get(session)?.acked(jobId);
      if (!entry) return void ackedLate(session.sessionId, jobId);
      if (entry.rescued) ackUndelivered(hot, session.sessionId, [jobId]).catch(() => {});
      entry.settle("out");
    },
    isAwaited(sessionId, jobId) {
      const session = links.session(sessionId);
      return session !== undefined && unacked.get(session)?.get(jobId) !== undefined;
    },
    async sessionJoined(session) {
      const jobIds = await listUndelivered(hot, session.sessionId, UNDELIVERED_MAX);
      const queue = queueOf(session);
      for (const jobId of jobIds)
        if (queue.get(jobId) === undefined) noteKept(session, jobId).wait(jobId);
    },
    async sessionLeft(session) {
      const { sessionId } = session;
      const left = unacked.get(session)?.close() ?? [];
      unacked.delete(session);
      const open = left.filter(([, { kept }]) => !kept);
      if (open.length === 0) return;
      try {
        const jobIds = open.map(([jobId]) => jobId);
        const keepMs = settings.retentionMs;
        await addUndelivered(hot, sessionId, jobIds, { keepMs });
        for (const [jobId, { settle }] of open)
          settle(await ringOwner(sessionId, { jobId, attemptId: 1 }));
      } catch (error) {
        for (const [, { settle }] of open) settle("stay");
        throw error;
      }
    },
    follow(jobId, hear) {
      const hearing = followers.get(jobId) ?? new Set();
      followers.set(jobId, hearing.add(hear));
      return () => {
        hearing.delete(hear);
        if (hearing.size === 0 && followers.get(jobId) === hearing) followers.delete(jobId);
      };
    },
    async endedElsewhere(jobId) {
      if (!followers.has(jobId)) return;
      const ending = await readEnding(jobId);
      if (ending) tellFollowers(ending);
    },
  };
}

const RING_LIMIT_MS = 60_000;

export const endingOf = (
  record: Pick<Ending, "jobId" | "requestId" | "turnId" | "attemptId" | "nodeId"> & {
    result?: string | undefined;
  },
  outcome: Ending["outcome"],
): Ending => ({
  jobId: record.jobId,
  requestId: record.requestId,
  turnId: record.turnId,
  attemptId: record.attemptId,
  nodeId: record.nodeId,
  outcome,
  result: record.result ?? resultText({ error: evictedError(record.jobId, outcome) }),
  isEvicted: record.result === undefined,
});
