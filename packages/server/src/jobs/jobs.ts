import {
  type FinalizeReason,
  type Job,
  type JobSpec,
  type JobSubmit,
  type NodeView,
  TenureError,
  type TurnView,
  toErrorMessage,
} from "@tenure/protocol";
import type { Delivery } from "../delivery/contract.ts";
import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import type { Random } from "../kernel/random.ts";
import { every, type Service } from "../kernel/service.ts";
import type { HotStore } from "../store/hot-store.ts";
import { type Bells, createBells } from "./bells.ts";
import { isStoreDown, type JobsContext, type JobsSettings, type StoreTrouble } from "./context.ts";
import { createDeadlines } from "./deadlines.ts";
import { rescheduleDue } from "./due-store.ts";
import { createDueWorker } from "./due-worker.ts";
import { createEndings } from "./ending.ts";
import { listen, readJob } from "./job-store.ts";
import { createLinks, type NodeEnd, type SessionEnd } from "./links.ts";
import { createBook, isAt, type LiveJob, liveJobOf, type Place, stateLimitMs } from "./live-job.ts";
import type { JobMeter } from "./meter.ts";
import { createNodeDesk, type NodeDesk } from "./node-desk.ts";
import { createPlacement, PATIENCE_ALARM, type Placement } from "./placement.ts";
import { createReading, type JobFilter, noJob, renderJob } from "./reading.ts";
import { createReports, type NodeReport, type Reports } from "./reports.ts";
import { createResults, endingOf } from "./results.ts";
import { createRoster } from "./roster.ts";
import { createSlots } from "./slots.ts";
import { createStormGuard } from "./storm-guard.ts";
import { createSubmit, type Submitted } from "./submit.ts";
import { createTelling } from "./telling.ts";
import { createTracing } from "./tracing.ts";
import { createTurns, PAUSE_ALARM } from "./turns.ts";
import { createWaitingRoom } from "./waiting.ts";
import { resultFrame } from "./wire.ts";

export interface JobsOptions {
  hot: HotStore;
  instanceId: string;
  settings: JobsSettings;
  clock: Clock;
  random: Random;
  log: Log;
  meter: JobMeter;
  delivery: Pick<Delivery, "send" | "nowMs">;
}

/** Jobs, from a session to a node and back. One call per message; what comes of it is said over the links. */
export interface Jobs extends Service, Bells {
  readonly sessions: SessionJobs;
  readonly nodes: NodeJobs;
  readonly http: HttpJobs;
  /** After every round of membership. */
  fleetSeen(nodes: readonly NodeView[]): void;
  reservedOf(nodeId: string): number;
}

export interface SessionJobs {
  submit(session: SessionEnd, message: JobSubmit): void;
  cancel(session: SessionEnd, jobId: string): Promise<void>;
  resultAcked(session: SessionEnd, jobId: string): void;
  finalizeTurn(session: SessionEnd, reason: FinalizeReason): Promise<void>;
  /** `turnPauseMs`: after so long without a job its turn is ended for it. */
  joined(session: SessionEnd, options: { turnPauseMs: number | undefined }): Promise<void>;
  left(session: SessionEnd): Promise<void>;
  /** Its owner is written again after the store was away. */
  foundAgain(session: SessionEnd): void;
  /** The client is done for good. */
  closed(session: SessionEnd): Promise<void>;
}

export interface NodeJobs extends Pick<NodeDesk, "registering" | "joined" | "left" | "heartbeat"> {
  reported(node: NodeEnd, report: NodeReport): void;
}

export interface HttpJobs {
  /** `ended`: within `waitMs`. */
  submit(
    spec: JobSpec,
    by: { tenant: string; waitMs: number },
  ): Promise<{ job: Job; ended: boolean }>;
  list(filter: JobFilter): Promise<{ items: Job[]; next_cursor: string | null }>;
  read(jobId: string, tenant: string): Promise<Job>;
  cancel(jobId: string, tenant: string): Promise<Job>;
  readTurn(turnId: string, tenant: string): Promise<TurnView>;
}

const FIGURES_INTERVAL_MS = 1_000;

export function createJobs(options: JobsOptions): Jobs {
  const { instanceId, clock, log, delivery, meter } = options;
  const { hot, trouble } = watchStore(options.hot, clock);
  const book = createBook();
  const links = createLinks();
  const roster = createRoster({ clock });
  const waiting = createWaitingRoom<LiveJob>();
  const deadlines = createDeadlines({
    clock,
    onDue: ring,
    onError: (error) => log.error({ event: "deadlines.not-kept", error }, "looking again"),
  });
  const telling = createTelling({
    ...{ hot, instanceId, clock, links },
    onError: (error) =>
      log.debug({ event: "session.not-told", error }, "it will hear of the result"),
  });
  let storeOffsetMs = 0;
  const context: JobsContext = {
    ...options,
    ...{ hot, trouble, book, links, roster, waiting, deadlines, telling },
    tracing: createTracing(),
    ring: delivery.send,
    storeNowMs: () => Math.floor(clock.wallMs() + storeOffsetMs),
  };
  const results = createResults(context);
  const turns = createTurns(context);
  const slots = createSlots(context, (nodeId) => placement.freed(nodeId));
  const endings = createEndings(context, {
    slots,
    turns,
    results,
    placement: () => placement,
    isReported: (jobId) => reports.isReported(jobId),
    cancelOnNode,
  });
  const placement: Placement = createPlacement(
    context,
    { slots, turns },
    {
      retry: (job, reason) => attend(job, endings.retry(job, reason)),
      vanished,
    },
  );
  const storm = createStormGuard(context);
  const reports: Reports = createReports(context, {
    endings,
    load,
    unavailable: storm.unavailable,
    vanished,
  });
  const desk = createNodeDesk(context, { endings, placement, takeUp, load });
  const submit = createSubmit(context, { placement, turns });
  const bells = createBells(context, { results, endings, takeUp });
  const reading = createReading(hot);
  const due = createDueWorker(context, {
    ...{ endings, turns, placement, results, takeUp },
    giveUpWaiting: (job) => endings.onDeadline(job.jobId),
    storeTimeMs,
  });
  const figures = every(FIGURES_INTERVAL_MS, async () => observe(), {
    clock,
    onError: (error) => log.error({ event: "figures.not-observed", error }, "looking again"),
  });
  const services = [deadlines, placement, desk, due, turns, figures];

  function ring(alarm: string): void {
    if (alarm.startsWith(PAUSE_ALARM)) turns.onPause(alarm.slice(PAUSE_ALARM.length));
    else if (alarm.startsWith(PATIENCE_ALARM))
      placement.onPatience(alarm.slice(PATIENCE_ALARM.length));
    else endings.onDeadline(alarm);
  }

  async function storeTimeMs(): Promise<number> {
    const nowMs = await delivery.nowMs();
    storeOffsetMs = nowMs - clock.wallMs();
    return nowMs;
  }

  /** A job as its record has it, whoever has it in hand. */
  async function load(jobId: string): Promise<LiveJob | undefined> {
    const record = await readJob(hot, jobId);
    return (
      record && liveJobOf(record, { nowMs: clock.monotonicMs(), storeNowMs: context.storeNowMs() })
    );
  }

  /** From now on this instance has it in hand; one that it has already stays as it is. */
  async function takeUp(jobId: string, at?: Place): Promise<LiveJob | undefined> {
    const record = await readJob(hot, jobId, { payload: true });
    const held = book.get(jobId);
    if (!record || record.outcome || (at && !isAt(record, at))) return undefined;
    if (held?.attemptId === record.attemptId && held.state === record.state) return held;
    const times = { nowMs: clock.monotonicMs(), storeNowMs: context.storeNowMs() };
    const job = liveJobOf(record, times);
    waiting.remove(jobId);
    book.add(job);
    const limitMs = stateLimitMs(record);
    const sinceMs = record.state === "CREATED" ? record.attemptMs : record.stateMs;
    if (limitMs !== undefined)
      deadlines.set(jobId, Math.max(0, sinceMs + limitMs - times.storeNowMs));
    return job;
  }

  /** What must not fail is tried again by the index; what is a bug is told. */
  function attend(job: LiveJob, work: Promise<unknown>): void {
    work.catch((error) => {
      if (!isStoreDown(error))
        log.error({ event: "job.not-attended", jobId: job.jobId, error }, "the index will find it");
    });
  }

  /** Its record is gone with the store's memory. The client still has it, and may submit it again. */
  function vanished(job: LiveJob): void {
    const reason = "the job was lost with the store's memory";
    const error = new TenureError("DEPENDENCY_DOWN", { dependency: "the hot store", reason });
    const about = { request_id: job.requestId, job_id: job.jobId };
    if (job.sessionId) telling.tell(job.sessionId, JSON.stringify(toErrorMessage(error, about)));
  }

  function cancelOnNode(
    { jobId, attemptId, nodeId }: { jobId: string; attemptId: number; nodeId: string },
    reason: string,
  ): void {
    const words = reason.slice(0, 200);
    const message = { job_id: jobId, attempt_id: attemptId, reason: words };
    const near = links.node(nodeId);
    near?.link.send({ type: "job_cancel", ...message });
    if (near) return;
    const far = roster.get(nodeId)?.instanceId;
    if (!far || far === instanceId || hot.kind === "memory") return;
    const bell = { kind: "job.cancel", ...message, node_id: nodeId };
    // Should it get lost, the node's next heartbeat names an attempt that is over, and it is told then.
    delivery
      .send(far, { ...bell, deadline_ms: context.storeNowMs() + CANCEL_LIMIT_MS })
      .catch(() => {});
  }

  function observe(): void {
    const oldestMs = waiting.oldestMs();
    const oldestWaitSeconds =
      oldestMs === undefined ? 0 : (context.storeNowMs() - oldestMs) / 1_000;
    meter.observed({
      waiting: waiting.size(),
      oldestWaitSeconds: Math.max(0, oldestWaitSeconds),
      live: book.size(),
    });
  }

  function submitFor(session: SessionEnd, { type: _, ...spec }: JobSubmit): void {
    const { link, sessionId, tenant } = session;
    submit
      .submit({ ...spec, tenant, sessionId }, (submitted) => tellAccepted(session, submitted))
      .catch((error: unknown) => {
        meter.submitted("refused");
        if (!(error instanceof TenureError))
          log.error(
            { event: "job.not-submitted", sessionId, error },
            "a submit failed unexpectedly",
          );
        link.send(toErrorMessage(error, { request_id: spec.request_id }));
      });
  }

  function tellAccepted(session: SessionEnd, submitted: Submitted): void {
    const { link, sessionId } = session;
    if (submitted.outcome === "accepted") {
      const { requestId, jobId, turnId } = submitted.job;
      link.sendText(acceptedFrame({ requestId, jobId, turnId, duplicate: false }));
      return;
    }
    const { record } = submitted;
    const { requestId, jobId, turnId, outcome } = record;
    link.sendText(acceptedFrame({ requestId, jobId, turnId, duplicate: true }));
    if (outcome && record.sessionId === sessionId)
      return void results.bring(session, jobId).catch(() => {});
    if (outcome) link.sendText(resultFrame(endingOf(record, outcome)));
    else if (record.sessionId !== sessionId) followFor(session, jobId);
  }

  /** Another session's job: this one hears of its end too. */
  function followFor({ sessionId }: SessionEnd, jobId: string): void {
    const unfollow = results.follow(jobId, (ending) =>
      links.session(sessionId)?.link.sendText(resultFrame(ending)),
    );
    listenFor(jobId).catch(unfollow);
  }

  /** Whoever ends it will ring here; should it have ended meanwhile, nobody will. */
  async function listenFor(jobId: string): Promise<void> {
    const now = await listen(hot, jobId, instanceId);
    if (now?.state === "FINISHED" || now?.state === "RELEASED") await results.endedElsewhere(jobId);
  }

  async function cancelFor(session: SessionEnd, jobId: string): Promise<void> {
    try {
      await cancelJob(
        jobId,
        (job) => job.tenant === session.tenant && job.sessionId === session.sessionId,
      );
    } catch (error) {
      session.link.send(toErrorMessage(error, { job_id: jobId }));
    }
  }

  async function cancelJob(jobId: string, isOwn: (job: LiveJob) => boolean): Promise<void> {
    for (let tries = 0; tries < CANCEL_TRIES_MAX; tries++) {
      const job = book.get(jobId) ?? (await load(jobId));
      if (!job || !isOwn(job)) throw noJob(jobId);
      const answered = await endings.cancel(job);
      if (answered.outcome === "absent") throw noJob(jobId);
      if (answered.answers[0] !== "stale" && answered.answers[0] !== "ahead") return;
      // It went to another attempt in this moment: what is in hand is out of date.
      book.drop(job);
    }
  }

  const http: HttpJobs = {
    ...reading,
    readTurn: turns.read,
    async submit(spec, { tenant, waitMs }) {
      let submitted: Submitted | undefined;
      await submit.submit({ ...spec, tenant }, (answer) => {
        submitted = answer;
      });
      if (!submitted) throw new TenureError("INTERNAL", {});
      const jobId = submitted.outcome === "accepted" ? submitted.job.jobId : submitted.record.jobId;
      const isOwn = submitted.outcome === "accepted";
      if (waitMs > 0) await untilEnded(jobId, { waitMs, isOwn });
      const record = await reading.find(jobId, tenant);
      return { job: renderJob(record), ended: record.outcome !== undefined };
    },
    async cancel(jobId, tenant) {
      await cancelJob(jobId, (job) => job.tenant === tenant);
      return reading.read(jobId, tenant);
    },
  };

  /** Its end is heard of; and looked for now and then, should the word get lost. */
  async function untilEnded(
    jobId: string,
    { waitMs, isOwn }: { waitMs: number; isOwn: boolean },
  ): Promise<void> {
    const over = new AbortController();
    const unfollow = results.follow(jobId, () => over.abort());
    if (!isOwn) listenFor(jobId).catch(() => {});
    const untilMs = clock.monotonicMs() + waitMs;
    try {
      while (!over.signal.aborted && (await readJob(hot, jobId))?.outcome === undefined) {
        const leftMs = untilMs - clock.monotonicMs();
        if (leftMs <= 0) return;
        await clock.sleep(Math.min(leftMs, HTTP_LOOK_MS), over.signal);
      }
    } finally {
      unfollow();
    }
  }

  return {
    ...bells,
    http,
    sessions: {
      submit: submitFor,
      cancel: cancelFor,
      resultAcked: results.acked,
      finalizeTurn: turns.finalize,
      async joined(session, { turnPauseMs }) {
        links.addSession(session);
        await Promise.all([results.sessionJoined(session), turns.joined(session, turnPauseMs)]);
      },
      async left(session) {
        if (links.removeSession(session)) turns.left(session);
        await results.sessionLeft(session);
      },
      foundAgain(session) {
        if (links.session(session.sessionId) === session)
          results.sessionJoined(session).catch(() => {}); // the client asks again, then
      },
      closed: turns.closed,
    },
    nodes: { ...desk, reported: reports.hear },
    fleetSeen(nodes) {
      roster.refresh(nodes);
      placement.look();
    },
    reservedOf: roster.reservedOf,
    start() {
      telling.start();
      for (const service of services) service.start();
    },
    async stop() {
      await Promise.all(services.map((service) => service.stop()));
      await handOver().catch(() => {}); // with the store down; the index comes to them in its own time
    },
  };

  /** Who waits here need not wait until somebody misses this instance. */
  async function handOver(): Promise<void> {
    const waitingJobs = [...book.values()].filter(({ state }) => state === "CREATED");
    await rescheduleDue(
      hot,
      waitingJobs.map(({ jobId }) => ({ jobId, inMs: 0 })),
    );
  }
}

/** The same store, with an eye on whether it answers. */
function watchStore(hot: HotStore, clock: Clock): { hot: HotStore; trouble: StoreTrouble } {
  let troubleMs = Number.NEGATIVE_INFINITY;
  const note = (error: unknown) => {
    if (isStoreDown(error)) troubleMs = clock.monotonicMs();
  };
  const run: HotStore["run"] = (script, keys, args) => {
    const reply = hot.run(script, keys, args);
    reply.catch(note);
    return reply;
  };
  return { hot: { ...hot, run }, trouble: { atMs: () => troubleMs } };
}

const CANCEL_LIMIT_MS = 60_000;
const CANCEL_TRIES_MAX = 5;
const HTTP_LOOK_MS = 1_000;

const acceptedFrame = (accepted: {
  requestId: string;
  jobId: string;
  turnId: string | undefined;
  duplicate: boolean;
}): string =>
  JSON.stringify({
    type: "job_accepted",
    request_id: accepted.requestId,
    job_id: accepted.jobId,
    turn_id: accepted.turnId,
    duplicate: accepted.duplicate,
  });
