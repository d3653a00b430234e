import { type FinalizeReason, serves, TenureError, type TurnView } from "@tenure/protocol";
import { failpoint } from "#failpoint";
import { uuid7 } from "../../kernel/random.ts";
import { every, type Service } from "../../kernel/service.ts";
import { readSession } from "../../membership/store/session-store.ts";
import { isStoreDown, type JobsContext } from "../context.ts";
import type { SessionEnd } from "../memory/connections.ts";
import { type LiveJob, needOf } from "../memory/tracked-jobs.ts";
import { persistJob } from "../store/job-store.ts";
import {
  endTurn,
  forgetTurns,
  joinTurn,
  leaveTurn,
  noteTurn,
  openTurn,
  placeTurn,
  readTurn,
  takeTurns,
} from "./turn-store.ts";

/** Jobs of one turn go to one node. The first placement decides; an explicit word ends it. */
export interface Turns extends Service {
  /**
   * What a session says of its turns takes effect in the order it was said. `work` begins when its turn has come.
   *
   * `joins`: it only joins the current turn. Those do not wait for each other, because their order makes no difference:
   * they wait for the closing before them, and a closing waits for all before it.
   */
  inLine<T>(
    sessionId: string,
    kind: "joins" | "closes",
    work: (atMyTurn: () => Promise<void>) => Promise<T>,
  ): Promise<T>;
  /** At accept, for a job that has won its request: which turn it belongs to. */
  join(job: LiveJob): Promise<void>;
  /** The turn's node as far as it is known here. */
  nodeOf(turnId: string): string | undefined;
  /** Another job of the same turn is being placed, and its node will be the turn's. */
  isDeciding(job: LiveJob): boolean;
  /** This job is being placed. What it ends with is told by `decided`. */
  deciding(job: LiveJob): void;
  decided(job: LiveJob): void;
  /** A slot is reserved there: is it the turn's node? `elsewhere`: give the slot back and try the turn's own. */
  settle(job: LiveJob, nodeId: string): Promise<"here" | "elsewhere">;
  /** The job was placed, or has ended without: if it was the turn's last, the turn is over. */
  placedOrEnded(job: LiveJob): void;
  finalize(session: SessionEnd, reason: FinalizeReason): Promise<void>;
  joined(session: SessionEnd, pauseMs: number | undefined): Promise<void>;
  left(session: SessionEnd): void;
  /** The client is done for good. */
  closed(session: SessionEnd): Promise<void>;
  /** The alarm set for a session that asked for one: nothing was said for its pause. */
  onPause(sessionId: string): void;
  /** `token`: only a turn of a session that the token of this name opened. */
  read(turnId: string, tenant: string, token?: string): Promise<TurnView>;
}

/** Before the name of a session in the alarms of an instance, which are otherwise jobs'. */
export const PAUSE_ALARM = "pause ";

const KNOWN_MAX = 100_000;
const SWEPT_MAX = 500;
/** Longer than the store takes to open a turn that is noted. */
const OPENING_MS = 10_000;

const NOTHING_BEFORE = { all: Promise.resolve(), closing: Promise.resolve() };

export function createTurns(context: JobsContext): Turns {
  const { hot, clock, random, log, links, deadlines, meter, settings } = context;
  const nodes = new Map<string, string>();
  /** By turn: the job whose placement decides. */
  const deciders = new Map<string, LiveJob>();
  const lines = new Map<string, { all: Promise<void>; closing: Promise<void> }>();
  /** Sessions that asked for an alarm, with the turn it is about. */
  const pauses = new Map<string, { pauseMs: number; turnId: string | undefined }>();
  const closingMs = 2 * (settings.pendingTimeoutMs + settings.ackTimeoutMs);
  const checkInMs = Math.min(Math.max(settings.sessionGoneAfterMs / 10, 500), 30_000);

  async function inLine<T>(
    sessionId: string,
    kind: "joins" | "closes",
    work: (atMyTurn: () => Promise<void>) => Promise<T>,
  ): Promise<T> {
    const { all, closing } = lines.get(sessionId) ?? NOTHING_BEFORE;
    const working = work(() => (kind === "joins" ? closing : all));
    // One that fails lets the next one go on.
    const over = Promise.allSettled([all, working]).then(() => {
      if (lines.get(sessionId)?.all === over) lines.delete(sessionId);
    });
    lines.set(sessionId, { all: over, closing: kind === "closes" ? over : closing });
    return working;
  }

  async function join(job: LiveJob): Promise<void> {
    const { jobId, sessionId, finalize } = job;
    if (!sessionId) return;
    await failpoint("turn.before-join");
    const turnId = uuid7(random, clock.wallMs());
    const joined = await joinTurn(hot, {
      sessionId,
      jobId,
      turnId,
      finalize: finalize !== undefined,
    });
    if (joined.outcome === "absent") return; // the session is gone for good; its job is not
    await failpoint("turn.after-join");
    await Promise.all([
      joined.begun ? open(joined.turnId, sessionId) : undefined,
      persistJob(hot, jobId, { turnId: joined.turnId }),
    ]);
    // Only now: who fails before it is written down joins again, or the others who have the job would not know its turn.
    job.turnId = joined.turnId;
    job.need = needOf(job.service, job);
    const pause = pauses.get(sessionId);
    if (!pause) return;
    pause.turnId = finalize ? undefined : joined.turnId;
    setAlarm(sessionId);
  }

  async function open(turnId: string, sessionId: string): Promise<void> {
    // Noted first: a turn that is opened and not noted would stay for good if this instance stopped in between.
    await noteTurn(hot, turnId, checkInMs);
    await failpoint("turn.after-note");
    await openTurn(hot, { turnId, sessionId });
  }

  function setAlarm(sessionId: string): void {
    const pause = pauses.get(sessionId);
    const key = `${PAUSE_ALARM}${sessionId}`;
    if (pause?.turnId) deadlines.set(key, pause.pauseMs);
    else deadlines.clear(key);
  }

  async function settle(job: LiveJob, nodeId: string): Promise<"here" | "elsewhere"> {
    const { turnId, sessionId } = job;
    // The turn's node was known, or could not be used: nothing is ever written back.
    if (!turnId || !sessionId || nodes.has(turnId)) return "here";
    const placed = await placeTurn(hot, { turnId, sessionId, nodeId });
    know(turnId, placed.nodeId);
    job.affinity = placed.outcome === "placed" ? "first" : "hit";
    return placed.nodeId === nodeId ? "here" : "elsewhere";
  }

  function know(turnId: string, nodeId: string): void {
    if (nodes.size >= KNOWN_MAX) nodes.delete(nodes.keys().next().value ?? "");
    nodes.set(turnId, nodeId);
  }

  async function end(turnId: string, sessionId: string, reason: FinalizeReason): Promise<void> {
    await endTurn(hot, { turnId, sessionId, reason });
    nodes.delete(turnId);
    await forgetTurns(hot, [turnId]);
  }

  function placedOrEnded(job: LiveJob): void {
    const { sessionId, finalize } = job;
    if (!sessionId || !finalize) return;
    closeWith(job, { sessionId, reason: finalize }).catch(() => {}); // the sweep does it, then
  }

  /** The turn's last job. One that was given up before it had joined its turn ends it all the same. */
  async function closeWith(
    job: LiveJob,
    { sessionId, reason }: { sessionId: string; reason: FinalizeReason },
  ): Promise<void> {
    // In line: whoever submitted it here may be about to do the same, after what was said before.
    if (!job.turnId)
      await inLine(sessionId, "closes", async (atMyTurn) => {
        await atMyTurn();
        if (!job.turnId) await join(job);
      });
    job.finalize = undefined;
    if (job.turnId) await end(job.turnId, sessionId, reason);
  }

  /** Says which turn that was; `undefined` when there was none, or another by now. */
  async function close(
    sessionId: string,
    reason: FinalizeReason,
    turnId?: string,
  ): Promise<string | undefined> {
    const over = await leaveTurn(hot, { sessionId, turnId });
    if (over !== undefined) await end(over, sessionId, reason);
    const pause = pauses.get(sessionId);
    if (pause) pause.turnId = undefined;
    setAlarm(sessionId);
    return over;
  }

  async function finalize(session: SessionEnd, reason: FinalizeReason): Promise<void> {
    const { sessionId, link } = session;
    await inLine(sessionId, "closes", async (atMyTurn) => {
      await atMyTurn();
      const turn_id = await close(sessionId, reason);
      if (!turn_id) throw new TenureError("NOT_FOUND", { what: "turn of session", id: sessionId });
      link.send({ type: "turn_finalized", turn_id, reason });
    });
  }

  function onPause(sessionId: string): void {
    const turnId = pauses.get(sessionId)?.turnId;
    if (!turnId) return;
    inLine(sessionId, "closes", async (atMyTurn) => {
      await atMyTurn();
      // A job that came meanwhile has set the alarm anew.
      if (pauses.get(sessionId)?.turnId !== turnId) return;
      const turn_id = await close(sessionId, "timeout", turnId);
      if (turn_id)
        links.session(sessionId)?.link.send({ type: "turn_finalized", turn_id, reason: "timeout" });
    }).catch(() => setAlarm(sessionId)); // with the store down: once more, after the pause
  }

  /** Turns whose session is gone for good, and those whose closing job was lost on its way. */
  const closedSinceMs = new Map<string, number>();
  async function sweep(): Promise<void> {
    const turnIds = await takeTurns(hot, { countMax: SWEPT_MAX, checkInMs });
    const left = await Promise.all(turnIds.map(sweepOne));
    meter.turnsLeft(left.filter(Boolean).length);
    const oldMs = clock.monotonicMs() - 2 * closingMs;
    for (const [turnId, sinceMs] of closedSinceMs)
      if (sinceMs < oldMs) closedSinceMs.delete(turnId);
  }

  /** Whether something is left of it that should not be. */
  async function sweepOne(turnId: string): Promise<boolean> {
    const turn = await readTurn(hot, turnId);
    if (!turn && !isSinceLong(turnId, OPENING_MS)) return false; // it may be about to be opened
    if (!turn || turn.ended) {
      await forgetTurns(hot, [turnId]);
      return false;
    }
    const session = await readSession(hot, turn.sessionId);
    if (session && !isLongClosed(turnId, session.currentTurnId)) return false;
    try {
      await end(turnId, turn.sessionId, "timeout");
      return false;
    } catch (error) {
      if (isStoreDown(error)) return true;
      throw error;
    }
  }

  /** Its closing job may wait for a slot for a while; then it was placed, has ended, or is lost. */
  function isLongClosed(turnId: string, currentTurnId: string | null): boolean {
    return currentTurnId !== turnId && isSinceLong(turnId, closingMs);
  }

  function isSinceLong(turnId: string, limitMs: number): boolean {
    const nowMs = clock.monotonicMs();
    const sinceMs = closedSinceMs.get(turnId) ?? nowMs;
    closedSinceMs.set(turnId, sinceMs);
    return nowMs - sinceMs > limitMs;
  }

  const loop = every(checkInMs, sweep, {
    clock,
    onError: (error) => log.warn({ event: "turns.not-swept", error }, "will be swept again"),
  });

  return {
    inLine,
    join,
    nodeOf: (turnId) => nodes.get(turnId),
    isDeciding: (job) => {
      const decider = job.turnId === undefined ? undefined : deciders.get(job.turnId);
      return decider !== undefined && decider !== job;
    },
    deciding(job) {
      if (job.turnId && !nodes.has(job.turnId)) deciders.set(job.turnId, job);
    },
    decided(job) {
      if (job.turnId && deciders.get(job.turnId) === job) deciders.delete(job.turnId);
    },
    settle,
    placedOrEnded,
    finalize,
    async joined({ sessionId }, pauseMs) {
      if (!pauseMs) return;
      pauses.set(sessionId, { pauseMs, turnId: undefined });
      const turnId = (await readSession(hot, sessionId))?.currentTurnId ?? undefined;
      const pause = pauses.get(sessionId);
      if (pause && !pause.turnId) pause.turnId = turnId;
      setAlarm(sessionId);
    },
    left({ sessionId }) {
      pauses.delete(sessionId);
      deadlines.clear(`${PAUSE_ALARM}${sessionId}`);
    },
    async closed({ sessionId }) {
      await close(sessionId, "manual");
    },
    onPause,
    async read(turnId, tenant, token) {
      const turn = await readTurn(hot, turnId);
      const session = turn && (await readSession(hot, turn.sessionId));
      const isOwn = token === undefined || session?.token === token;
      if (!turn || !session || !serves([tenant], session.tenant) || !isOwn)
        throw new TenureError("NOT_FOUND", { what: "turn", id: turnId });
      const { sessionId, nodeId, ended } = turn;
      return {
        turn_id: turnId,
        session_id: sessionId,
        affinity_node_id: nodeId ?? null,
        ended: ended ?? null,
      };
    },
    start: () => loop.start(),
    stop: () => loop.stop(),
  };
}
