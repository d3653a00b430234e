import { type FinalizeReason, serves, TenureError, type TurnView } from "@tenure/protocol";
import { failpoint } from "#failpoint";
import { uuid7 } from "../../kernel/random.ts";
import type { Service } from "../../kernel/service.ts";
import { readSession } from "../../membership/store/session-store.ts";
import { needOf, type TrackedJob } from "../job.ts";
import type { SessionConnection } from "../memory/connections.ts";
import { createDeadlines, type Deadlines } from "../memory/deadlines.ts";
import type { JobsParts } from "../parts.ts";
import { persistJob } from "../store/job-store.ts";
import { TurnOrder } from "./turn-order.ts";
import {
  endTurn,
  forgetTurns,
  joinTurn,
  leaveTurn,
  noteTurn,
  openTurn,
  placeTurn,
  readTurn,
} from "./turn-store.ts";
import { createTurnSweep } from "./turn-sweep.ts";

/** Turns whose node is cached. */
const KNOWN_MAX = 100_000;

type Parts = Pick<
  JobsParts,
  "hot" | "clock" | "random" | "log" | "connections" | "metrics" | "settings"
>;

/** Jobs of one turn go to one node: the first placement decides which. A turn ends by an explicit message or when idle. */
export class Turns implements Service {
  readonly #parts: Parts;
  readonly #order = new TurnOrder();
  /** By turn: its node, as far as this instance knows it. */
  readonly #nodes = new Map<string, string>();
  /** By turn: the job whose placement decides the node. */
  readonly #deciders = new Map<string, TrackedJob>();
  /** Sessions that want their turn ended when idle, with that turn. */
  readonly #idle = new Map<string, { pauseMs: number; turnId: string | undefined }>();
  /** By session: the end of its idle turn. */
  readonly #idleDeadlines: Deadlines;
  readonly #sweep: Service;
  readonly #checkInMs: number;

  constructor(parts: Parts) {
    this.#parts = parts;
    const { clock, log, settings } = parts;
    this.#checkInMs = Math.min(Math.max(settings.sessionGoneAfterMs / 10, 500), 30_000);
    this.#idleDeadlines = createDeadlines({
      clock,
      onDue: (sessionId) => this.#endIdle(sessionId),
      onError: (error) =>
        log.error({ event: "deadlines.not-kept", error }, "a timer of turns failed; will retry"),
    });
    this.#sweep = createTurnSweep(parts, {
      checkInMs: this.#checkInMs,
      end: (turnId, sessionId) => this.#end(turnId, sessionId, "timeout"),
    });
  }

  start(): void {
    this.#idleDeadlines.start();
    this.#sweep.start();
  }

  async stop(): Promise<void> {
    await Promise.all([this.#idleDeadlines.stop(), this.#sweep.stop()]);
  }

  /** Runs `work` in the order of the session's messages about its turns; see `TurnOrder`. */
  inLine<T>(
    sessionId: string,
    kind: "joins" | "closes",
    work: (inOrder: () => Promise<void>) => Promise<T>,
  ): Promise<T> {
    return this.#order.run(sessionId, kind, work);
  }

  /** Joins the current turn of the session, for a job that has won its request. */
  async join(job: TrackedJob): Promise<void> {
    const { hot, random, clock } = this.#parts;
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
    if (joined.outcome === "absent") return; // the session is gone; its job is not
    await failpoint("turn.after-join");
    await Promise.all([
      joined.begun ? this.#open(joined.turnId, sessionId) : undefined,
      persistJob(hot, jobId, { turnId: joined.turnId }),
    ]);
    // Set last: if a write fails, the job joins again, so that every instance sees the same turn.
    job.turnId = joined.turnId;
    job.need = needOf(job.service, job);
    const idle = this.#idle.get(sessionId);
    if (!idle) return;
    idle.turnId = finalize ? undefined : joined.turnId;
    this.#setIdleDeadline(sessionId);
  }

  /** The turn's node as far as it is known here. */
  nodeOf(turnId: string): string | undefined {
    return this.#nodes.get(turnId);
  }

  /** Whether another job of the same turn is being placed, whose node will be the turn's. */
  isDeciding(job: TrackedJob): boolean {
    const decider = job.turnId === undefined ? undefined : this.#deciders.get(job.turnId);
    return decider !== undefined && decider !== job;
  }

  /** The job is being placed. `decided` ends it. */
  deciding(job: TrackedJob): void {
    if (job.turnId && !this.#nodes.has(job.turnId)) this.#deciders.set(job.turnId, job);
  }

  decided(job: TrackedJob): void {
    if (job.turnId && this.#deciders.get(job.turnId) === job) this.#deciders.delete(job.turnId);
  }

  /** A slot is reserved there: decides whether it is the turn's node. `elsewhere`: give the slot back and place again. */
  async decideNode(job: TrackedJob, nodeId: string): Promise<"here" | "elsewhere"> {
    const { turnId, sessionId } = job;
    // The turn's node is known, or could not be used: it does not change.
    if (!turnId || !sessionId || this.#nodes.has(turnId)) return "here";
    const placed = await placeTurn(this.#parts.hot, { turnId, sessionId, nodeId });
    this.#know(turnId, placed.nodeId);
    job.affinity = placed.outcome === "placed" ? "first" : "hit";
    return placed.nodeId === nodeId ? "here" : "elsewhere";
  }

  /** The job was placed, or has ended without: if it was the turn's last, the turn ends. */
  placedOrEnded(job: TrackedJob): void {
    const { sessionId, finalize } = job;
    if (!sessionId || !finalize) return;
    this.#closeWith(job, sessionId, finalize).catch(() => {}); // then the sweep ends it
  }

  async finalize(session: SessionConnection, reason: FinalizeReason): Promise<void> {
    const { sessionId, link } = session;
    await this.inLine(sessionId, "closes", async (inOrder) => {
      await inOrder();
      const turn_id = await this.#close(sessionId, reason);
      if (!turn_id) throw new TenureError("NOT_FOUND", { what: "turn of session", id: sessionId });
      link.send({ type: "turn_finalized", turn_id, reason });
    });
  }

  async joined({ sessionId }: SessionConnection, pauseMs: number | undefined): Promise<void> {
    if (!pauseMs) return;
    this.#idle.set(sessionId, { pauseMs, turnId: undefined });
    const turnId = (await readSession(this.#parts.hot, sessionId))?.currentTurnId ?? undefined;
    const idle = this.#idle.get(sessionId);
    if (idle && !idle.turnId) idle.turnId = turnId;
    this.#setIdleDeadline(sessionId);
  }

  left({ sessionId }: SessionConnection): void {
    this.#idle.delete(sessionId);
    this.#idleDeadlines.clear(sessionId);
  }

  /** The client has closed its session. */
  async closed({ sessionId }: SessionConnection): Promise<void> {
    await this.#close(sessionId, "manual");
  }

  /** `token`: only a turn of a session that the token of this name opened. */
  async read(turnId: string, tenant: string, token?: string): Promise<TurnView> {
    const { hot } = this.#parts;
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
  }

  async #open(turnId: string, sessionId: string): Promise<void> {
    // Noted first: a turn that is opened and not noted would never be swept if this instance stopped in between.
    await noteTurn(this.#parts.hot, turnId, this.#checkInMs);
    await failpoint("turn.after-note");
    await openTurn(this.#parts.hot, { turnId, sessionId });
  }

  #setIdleDeadline(sessionId: string): void {
    const idle = this.#idle.get(sessionId);
    if (idle?.turnId) this.#idleDeadlines.set(sessionId, idle.pauseMs);
    else this.#idleDeadlines.clear(sessionId);
  }

  #know(turnId: string, nodeId: string): void {
    const nodes = this.#nodes;
    if (nodes.size >= KNOWN_MAX) nodes.delete(nodes.keys().next().value ?? "");
    nodes.set(turnId, nodeId);
  }

  async #end(turnId: string, sessionId: string, reason: FinalizeReason): Promise<void> {
    const { hot } = this.#parts;
    await endTurn(hot, { turnId, sessionId, reason });
    this.#nodes.delete(turnId);
    await forgetTurns(hot, [turnId]);
  }

  /** Ends the turn with its last job, also if the job was given up before it had joined the turn. */
  async #closeWith(job: TrackedJob, sessionId: string, reason: FinalizeReason): Promise<void> {
    // In order: its submit on this instance may be about to join it too.
    if (!job.turnId)
      await this.inLine(sessionId, "closes", async (inOrder) => {
        await inOrder();
        if (!job.turnId) await this.join(job);
      });
    job.finalize = undefined;
    if (job.turnId) await this.#end(job.turnId, sessionId, reason);
  }

  /** Ends the session's current turn and returns its id; `undefined` if there is none, or another than `turnId`. */
  async #close(
    sessionId: string,
    reason: FinalizeReason,
    turnId?: string,
  ): Promise<string | undefined> {
    const over = await leaveTurn(this.#parts.hot, { sessionId, turnId });
    if (over !== undefined) await this.#end(over, sessionId, reason);
    const idle = this.#idle.get(sessionId);
    if (idle) idle.turnId = undefined;
    this.#setIdleDeadline(sessionId);
    return over;
  }

  /** The session has submitted no job for its pause: ends its turn. */
  #endIdle(sessionId: string): void {
    const turnId = this.#idle.get(sessionId)?.turnId;
    if (!turnId) return;
    this.inLine(sessionId, "closes", async (inOrder) => {
      await inOrder();
      // A job that arrived meanwhile has set a new deadline.
      if (this.#idle.get(sessionId)?.turnId !== turnId) return;
      const turn_id = await this.#close(sessionId, "timeout", turnId);
      const session = turn_id ? this.#parts.connections.session(sessionId) : undefined;
      if (turn_id) session?.link.send({ type: "turn_finalized", turn_id, reason: "timeout" });
    }).catch(() => this.#setIdleDeadline(sessionId)); // the store is down: retry after the pause
  }
}
