import { failpoint } from "#failpoint";
import type { NewDoorbell } from "../../delivery/doorbell.ts";
import { instanceOf } from "../../membership/owner-lookup.ts";
import { isOwnedBy, ownerKeys } from "../../membership/store/owner-store.ts";
import { type Condition, holds } from "../../store/call.ts";
import { resultFrame } from "../api/frames.ts";
import { type JobAttempt, type JobEnd, recordedEnd } from "../job.ts";
import type { SessionConnection } from "../memory/connections.ts";
import { ResultQueue } from "../memory/result-queue.ts";
import type { JobsParts } from "../parts.ts";
import type { DurableJobs } from "../rows/durable-jobs.ts";
import { readAttempts, readJob } from "../store/job-store.ts";
import { leaveRecoveryIndex } from "../store/recovery-index-store.ts";
import {
  ackUndelivered,
  addUndelivered,
  addUndeliveredIf,
  listUndelivered,
  UNDELIVERED_MAX,
} from "../store/undelivered-store.ts";

/** `out`: the job may leave the recovery index. `stay`: the result was sent on, and is not acknowledged yet. */
export type Delivered = "out" | "stay";

/** A result sent to a session connected here, or waiting for room, and not acknowledged. Never contains the result. */
interface Unacked {
  /** The result is in the session's undelivered set: another connection of the session will find it there. */
  kept: boolean;
  /** It may be in the set too, written by an instance that stopped then. */
  isRecovered: boolean;
  /** The result of another session's job. */
  isCopy: boolean;
  resolve: (delivered: Delivered) => void;
}

/** Results of one connection that may be unacknowledged. Above it the oldest move to the undelivered set. */
const UNACKED_MAX = 10_000;
const MOVED_AT_ONCE = 256;
const PEER_MESSAGE_LIMIT_MS = 60_000;

/** How far `announceIf` came. `unknown`: nothing was written, or it is not known what was. */
export type Announced = "sent" | "noted" | "unknown";

interface DeliverOptions {
  isRecovered?: boolean;
  announced?: Promise<Announced> | undefined;
}

type ResultOf = Pick<JobEnd, "jobId" | "attemptId" | "sessionId" | "originInstanceId">;

type Parts = Pick<
  JobsParts,
  "hot" | "instanceId" | "connections" | "log" | "clock" | "send" | "sendIf" | "storeClock"
> & { settings: Pick<JobsParts["settings"], "retentionMs"> };

/** Brings results to sessions, on the instance they are connected to. */
export class ResultDelivery {
  readonly #parts: Parts;
  readonly #unackedMax: number;
  readonly #recordFromRow: DurableJobs["recordFromRow"];
  /** By connection, not by session: results sent over an old socket were not sent over the new one. */
  readonly #unacked = new WeakMap<SessionConnection, ResultQueue<Unacked>>();
  readonly #followers = new Map<string, Set<(end: JobEnd) => void>>();

  constructor(
    parts: Parts,
    {
      unackedMax = UNACKED_MAX,
      recordFromRow = async () => undefined,
    }: { unackedMax?: number } & Partial<Pick<DurableJobs, "recordFromRow">> = {},
  ) {
    this.#parts = parts;
    this.#recordFromRow = recordFromRow;
    this.#unackedMax = unackedMax;
  }

  /**
   * Starts, on the condition that the job has ended, what `#sendAfter` does for a session that is not connected here: the
   * undelivered set, then the owner, and the message if the owner is the instance that accepted the job. `undefined`: the
   * session is here, or there is none, or it submitted here.
   */
  announceIf(
    ended: Condition,
    { jobId, attemptId, sessionId, originInstanceId }: ResultOf,
  ): Promise<Announced> | undefined {
    const { hot, instanceId, connections, settings, sendIf } = this.#parts;
    if (!sessionId || originInstanceId === instanceId || hot.kind === "memory") return undefined;
    if (connections.session(sessionId)) return undefined;
    const keepMs = settings.retentionMs;
    const added = addUndeliveredIf(hot, { all: [ended] }, { sessionId, jobId, keepMs });
    const key = ownerKeys.session(hot.prefix, sessionId);
    const owned = isOwnedBy(hot, { all: [added] }, { key, instanceId: originInstanceId });
    const message = this.#resultMessage({ jobId, attemptId, sessionId });
    const sent = sendIf([owned], originInstanceId, message);
    return sent.then(
      // `added` has its outcome before the message has one.
      ({ outcome }) => (outcome !== "skipped" ? "sent" : holds(added) ? "noted" : "unknown"),
      () => "unknown",
    );
  }

  /**
   * `isRecovered`: another instance began to deliver, and may have written the undelivered set. `announced`: the answer of
   * `announceIf`.
   */
  async deliver(
    end: JobEnd,
    { isRecovered = false, announced }: DeliverOptions = {},
  ): Promise<Delivered> {
    this.#notifyFollowers(end);
    this.#notifyListeners(end);
    const { sessionId } = end;
    if (!sessionId) return "out";
    // Awaited also when the session has connected here meanwhile: the set must not get a result that is acknowledged already.
    const reached = announced && (await announced);
    const session = this.#parts.connections.session(sessionId);
    if (session) return this.#sendTo(session, end, isRecovered || reached !== undefined);
    if (reached !== "sent" && reached !== "noted") return this.#sendAfter(sessionId, end);
    await failpoint("result.after-undelivered");
    return reached === "sent" ? "stay" : this.#notifyOwner(sessionId, end);
  }

  /** Brings a result that another instance announced to a session connected here. `absent`: there is none. */
  async bring(session: SessionConnection, jobId: string): Promise<"sent" | "absent"> {
    const queue = this.#queueOf(session);
    if (queue.isOnItsWay(jobId)) return "sent";
    if (!queue.hasRoom()) {
      this.#addKept(session, jobId).wait(jobId);
      return "sent";
    }
    const end = await this.#readEnd(jobId);
    if (!end) {
      await ackUndelivered(this.#parts.hot, session.sessionId, [jobId]);
      return "absent";
    }
    this.#addKept(session, jobId).offer(jobId, resultFrame(end));
    return "sent";
  }

  /** Sends the result of another session's job to a session that submitted the same request. Lost with the connection. */
  copy(session: SessionConnection, end: JobEnd): void {
    const entry = { kept: true, isRecovered: false, isCopy: true, resolve: () => {} };
    this.#add(session, end.jobId, entry).offer(end.jobId, resultFrame(end));
  }

  acked(session: SessionConnection, jobId: string): void {
    const entry = this.#unacked.get(session)?.acked(jobId);
    if (!entry) return void this.#ackedLate(session.sessionId, jobId);
    if (entry.isRecovered)
      ackUndelivered(this.#parts.hot, session.sessionId, [jobId]).catch(() => {});
    entry.resolve("out");
  }

  /** Whether the result was sent to a session connected here, or waits for room, and is not acknowledged yet. */
  isAwaited(sessionId: string, jobId: string): boolean {
    const session = this.#parts.connections.session(sessionId);
    return session !== undefined && this.#unacked.get(session)?.get(jobId) !== undefined;
  }

  /** Sends the results that arrived while the session was away. Call it after the session's owner is written. */
  async sessionJoined(session: SessionConnection): Promise<void> {
    const { sessionId } = session;
    const jobIds = await listUndelivered(this.#parts.hot, sessionId, UNDELIVERED_MAX);
    const queue = this.#queueOf(session);
    for (const jobId of jobIds)
      if (queue.get(jobId) === undefined) this.#addKept(session, jobId).wait(jobId);
  }

  async sessionLeft(session: SessionConnection): Promise<void> {
    const { hot, settings } = this.#parts;
    const { sessionId } = session;
    const left = this.#unacked.get(session)?.close() ?? [];
    this.#unacked.delete(session);
    const open = left.filter(([, { kept }]) => !kept);
    if (open.length === 0) return;
    try {
      const jobIds = open.map(([jobId]) => jobId);
      await addUndelivered(hot, sessionId, jobIds, { keepMs: settings.retentionMs });
      for (const [jobId, { resolve }] of open)
        resolve(await this.#notifyOwner(sessionId, { jobId, attemptId: 1 }));
    } catch (error) {
      for (const [, { resolve }] of open) resolve("stay");
      throw error;
    }
  }

  /** Calls back once, when the job has ended: for a session with the same request, or an HTTP caller that waits. */
  follow(jobId: string, onEnd: (end: JobEnd) => void): () => void {
    const followers = this.#followers.get(jobId) ?? new Set();
    this.#followers.set(jobId, followers.add(onEnd));
    return () => {
      followers.delete(onEnd);
      if (followers.size === 0 && this.#followers.get(jobId) === followers)
        this.#followers.delete(jobId);
    };
  }

  /** Another instance has ended the job. */
  async endedElsewhere(jobId: string): Promise<void> {
    if (!this.#followers.has(jobId)) return;
    const end = await this.#readEnd(jobId);
    if (end) this.#notifyFollowers(end);
  }

  /** Sent at once if the socket has room. If it closes before the acknowledgement, `sessionLeft` takes over. */
  #sendTo(session: SessionConnection, end: JobEnd, isRecovered: boolean): Promise<Delivered> {
    const { jobId } = end;
    session.link.updates?.remove(end.requestId);
    const frame = resultFrame(end);
    return new Promise((resolve) => {
      const entry = { kept: false, isRecovered, isCopy: false, resolve };
      this.#add(session, jobId, entry).offer(jobId, frame);
    });
  }

  #queueOf(session: SessionConnection): ResultQueue<Unacked> {
    const former = this.#unacked.get(session);
    if (former) return former;
    const queue = new ResultQueue<Unacked>({
      link: session.link,
      clock: this.#parts.clock,
      read: async (jobId) => {
        const end = await this.#readEnd(jobId);
        return end && resultFrame(end);
      },
      onAbsent: (_, { resolve }) => resolve("out"),
    });
    this.#unacked.set(session, queue);
    return queue;
  }

  #add(session: SessionConnection, jobId: string, entry: Unacked): ResultQueue<Unacked> {
    const queue = this.#queueOf(session);
    // An earlier entry is about the same result: one acknowledgement answers both callers.
    const former = queue.get(jobId);
    const resolve = former
      ? (delivered: Delivered) => {
          former.resolve(delivered);
          entry.resolve(delivered);
        }
      : entry.resolve;
    queue.put(jobId, {
      kept: entry.kept || (former?.kept ?? false),
      isRecovered: entry.isRecovered || (former?.isRecovered ?? false),
      isCopy: entry.isCopy,
      resolve,
    });
    if (queue.size > this.#unackedMax) void this.#moveOldest(session, queue);
    return queue;
  }

  /** Adds a result that is in the session's undelivered set, or may be. */
  #addKept(session: SessionConnection, jobId: string): ResultQueue<Unacked> {
    const resolve = (delivered: Delivered) => {
      if (delivered === "out") void this.#forget(session.sessionId, jobId);
    };
    return this.#add(session, jobId, { kept: true, isRecovered: false, isCopy: false, resolve });
  }

  /** This connection does not send them again unless the client asks; a late acknowledgement finds them in the set. */
  async #moveOldest({ sessionId }: SessionConnection, queue: ResultQueue<Unacked>): Promise<void> {
    const { hot, settings } = this.#parts;
    const oldest = queue.takeOldest(MOVED_AT_ONCE);
    const open = oldest.filter(([, { kept }]) => !kept);
    try {
      const jobIds = open.map(([jobId]) => jobId);
      if (jobIds.length > 0)
        await addUndelivered(hot, sessionId, jobIds, { keepMs: settings.retentionMs });
      for (const [, { resolve }] of open) resolve("out");
    } catch {
      for (const [, { resolve }] of open) resolve("stay");
    }
    const kept = oldest.filter(([, entry]) => entry.kept && !entry.isCopy);
    await Promise.all(kept.map(([jobId]) => this.#leaveIfReleased(jobId))).catch(() => {});
  }

  /**
   * FINISHED is written, the set is written, then the owner is read. A session that connects writes its owner before it
   * reads the set: one of the two always sees the other.
   */
  async #sendAfter(sessionId: string, { jobId, attemptId }: JobEnd): Promise<Delivered> {
    const { hot, settings } = this.#parts;
    await addUndelivered(hot, sessionId, [jobId], { keepMs: settings.retentionMs });
    await failpoint("result.after-undelivered");
    return this.#notifyOwner(sessionId, { jobId, attemptId });
  }

  async #notifyOwner(
    sessionId: string,
    { jobId, attemptId }: { jobId: string; attemptId: number },
  ): Promise<Delivered> {
    const { hot, instanceId, send } = this.#parts;
    const to = await instanceOf(hot, { session_id: sessionId }, instanceId);
    if (to === undefined) return "out"; // away: the session reads the set when it connects
    if (to === instanceId) return this.#bringHere(sessionId, jobId);
    await send(to, this.#resultMessage({ jobId, attemptId, sessionId }));
    return "stay";
  }

  #resultMessage({ jobId, attemptId, sessionId }: JobAttempt & { sessionId: string }): NewDoorbell {
    const { storeClock, settings } = this.#parts;
    return {
      kind: "job.result",
      job_id: jobId,
      attempt_id: attemptId,
      session_id: sessionId,
      deadline_ms: storeClock.nowMs() + settings.retentionMs,
    };
  }

  /** The session has connected here meanwhile. One that is still connecting has not read the set yet. */
  async #bringHere(sessionId: string, jobId: string): Promise<Delivered> {
    const session = this.#parts.connections.session(sessionId);
    return session && (await this.bring(session, jobId)) === "sent" ? "stay" : "out";
  }

  /** HTTP callers at the origin instance, and other sessions. If the message is lost they poll, or submit again. */
  #notifyListeners({ jobId, attemptId, sessionId, originInstanceId, listeners }: JobEnd): void {
    const { hot, instanceId, send, storeClock } = this.#parts;
    if (hot.kind === "memory") return;
    const origins = sessionId ? [] : [originInstanceId];
    const deadline_ms = storeClock.nowMs() + PEER_MESSAGE_LIMIT_MS;
    const message = { kind: "job.ended", job_id: jobId, attempt_id: attemptId, deadline_ms };
    for (const to of new Set([...origins, ...listeners]))
      if (to !== instanceId) send(to, message).catch(() => {});
  }

  #notifyFollowers(end: JobEnd): void {
    const followers = this.#followers.get(end.jobId);
    this.#followers.delete(end.jobId);
    for (const notify of followers ?? []) notify(end);
  }

  async #readEnd(jobId: string): Promise<JobEnd | undefined> {
    const record =
      (await readJob(this.#parts.hot, jobId, { result: true })) ??
      (await this.#recordFromRow(jobId));
    return record?.outcome && recordedEnd(record, record.outcome);
  }

  /** A job that is FINISHED stays in the index: the instance that ended it may have stopped before it freed the slot. */
  async #leaveIfReleased(jobId: string): Promise<void> {
    const [now] = await readAttempts(this.#parts.hot, [{ jobId }]);
    if (now?.state !== "FINISHED") await leaveRecoveryIndex(this.#parts.hot, [jobId]);
  }

  /** The result is acknowledged. If this fails, it is sent and acknowledged once more. */
  async #forget(sessionId: string, jobId: string): Promise<void> {
    const { hot, log } = this.#parts;
    try {
      await Promise.all([ackUndelivered(hot, sessionId, [jobId]), this.#leaveIfReleased(jobId)]);
    } catch (error) {
      log.debug(
        { event: "result.not-forgotten", jobId, error },
        "could not remove an acknowledged result; it will be sent again",
      );
    }
  }

  /** Acknowledges a result sent over a former connection. The session's own set decides whether it was its result. */
  async #ackedLate(sessionId: string, jobId: string): Promise<void> {
    const removed = await ackUndelivered(this.#parts.hot, sessionId, [jobId]).catch(() => 0);
    if (removed > 0) await this.#leaveIfReleased(jobId).catch(() => {});
  }
}
