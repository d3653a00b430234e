import { cutText, type NodeView, TenureError, toErrorMessage } from "@tenure/protocol";
import { failpoint } from "#failpoint";
import type { Delivery } from "../delivery/contract.ts";
import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import type { Random } from "../kernel/random.ts";
import { every, type Service } from "../kernel/service.ts";
import type { HotStore } from "../store/hot-store.ts";
import { type ClientDesk, createClientDesk } from "./api/session-api.ts";
import { isStoreDown, type JobsContext, type JobsSettings, type StoreTrouble } from "./context.ts";
import { BACK_OFF_ALARM, createEndings } from "./flow/attempt-outcomes.ts";
import { createNodeDesk, type NodeDesk } from "./flow/node-lifecycle.ts";
import { createReports, type NodeReport, type Reports } from "./flow/node-reports.ts";
import { type Bells, createBells } from "./flow/peer-messages.ts";
import { createPlacement, PATIENCE_ALARM, type Placement } from "./flow/placement.ts";
import { createDueWorker } from "./flow/recovery-worker.ts";
import { createResults } from "./flow/result-delivery.ts";
import { createRetention } from "./flow/retention.ts";
import { createTelling } from "./flow/session-notifier.ts";
import { createElsewhere } from "./flow/slot-handover.ts";
import { createSlots } from "./flow/slots.ts";
import { createStormGuard } from "./flow/storm-guard.ts";
import { createSubmit } from "./flow/submit.ts";
import { createTracing } from "./flow/tracing.ts";
import { createLinks, type NodeEnd } from "./memory/connections.ts";
import { createDeadlines } from "./memory/deadlines.ts";
import { createRoster } from "./memory/node-pool.ts";
import {
  createBook,
  isAt,
  type LiveJob,
  liveJobOf,
  type Place,
  stateLimitMs,
} from "./memory/tracked-jobs.ts";
import { createWaitingRoom } from "./memory/wait-queue.ts";
import type { JobMeter } from "./meter.ts";
import { readJob } from "./store/job-store.ts";
import { rescheduleDue } from "./store/recovery-index-store.ts";
import { createTurns, PAUSE_ALARM } from "./turns/turns.ts";

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
export interface Jobs extends Service, Bells, ClientDesk {
  readonly nodes: NodeJobs;
  /** This instance is about to close the sockets of its nodes: places nothing on them from now on. */
  stopPlacingHere(): void;
  /** After every round of membership. */
  fleetSeen(nodes: readonly NodeView[]): void;
  reservedOf(nodeId: string): number;
  /** Jobs of these tenants that this instance tracks: waiting here, and on nodes. */
  openOf(tenants: readonly string[]): { waiting: number; running: number };
  /** Whose job it is; `undefined` when no record is left of it. */
  tenantOf(jobId: string): Promise<string | undefined>;
}

export interface NodeJobs extends Pick<NodeDesk, "registering" | "joined" | "left" | "heartbeat"> {
  reported(node: NodeEnd, report: NodeReport): void;
}

const FIGURES_INTERVAL_MS = 1_000;
const PROMPT_MS_MAX = 500;

export function createJobs(options: JobsOptions): Jobs {
  const { instanceId, clock, log, delivery, meter } = options;
  const { hot, trouble } = watchStore(options.hot, clock);
  const book = createBook();
  const links = createLinks();
  const roster = createRoster({ clock });
  const waiting = createWaitingRoom<LiveJob>((pool) => elsewhere.changed(pool));
  const elsewhere = createElsewhere(
    {
      ...{ hot, instanceId, clock, roster },
      onError: (error) => {
        if (!isStoreDown(error))
          log.error({ event: "waiting.not-posted", error }, "could not tell other instances");
      },
    },
    {
      heads: (pool) => waiting.heads(pool, roster.offersIn(pool)),
      serve: (pool) => placement.serve(pool),
      freed: (nodeId) => placement.freed(nodeId),
    },
  );
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
  // To the clock that nobody sets. Until the store has said its time, this machine's is the best guess.
  let storeOffsetMs = clock.wallMs() - clock.monotonicMs();
  const context: JobsContext = {
    ...options,
    ...{ hot, trouble, book, links, roster, waiting, elsewhere, deadlines, telling },
    tracing: createTracing(log),
    ring: delivery.send,
    storeNowMs: () => Math.floor(clock.monotonicMs() + storeOffsetMs),
  };
  const retention = createRetention(context);
  const results = createResults(context);
  const turns = createTurns(context);
  const slots = createSlots(context, (nodeId) => placement.freed(nodeId));
  const endings = createEndings(context, {
    slots,
    turns,
    results,
    retention,
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
  const submit = createSubmit(context, { placement, turns, retention });
  const bells = createBells(context, { results, endings, takeUp });
  const clients = createClientDesk(context, { submit, results, turns, endings, load });
  const due = createDueWorker(context, {
    ...{ endings, turns, placement, results, retention, takeUp },
    giveUpWaiting: (job) => endings.onDeadline(job.jobId),
    storeTimeMs,
  });
  const figures = every(FIGURES_INTERVAL_MS, async () => observe(), {
    clock,
    onError: (error) => log.error({ event: "figures.not-observed", error }, "looking again"),
  });
  const services = [deadlines, placement, elsewhere, desk, due, turns, retention, figures];

  function ring(alarm: string): void {
    if (alarm.startsWith(PAUSE_ALARM)) turns.onPause(alarm.slice(PAUSE_ALARM.length));
    else if (alarm.startsWith(PATIENCE_ALARM))
      placement.onPatience(alarm.slice(PATIENCE_ALARM.length));
    else if (alarm.startsWith(BACK_OFF_ALARM))
      endings.onBackOff(alarm.slice(BACK_OFF_ALARM.length));
    else endings.onDeadline(alarm);
  }

  async function storeTimeMs(): Promise<number> {
    const askedMs = clock.monotonicMs();
    const nowMs = await delivery.nowMs();
    const answeredMs = clock.monotonicMs();
    // An answer that was long on its way says what the time was.
    if (answeredMs - askedMs < PROMPT_MS_MAX) storeOffsetMs = nowMs - answeredMs;
    return nowMs;
  }

  /** A job as its record has it, whoever has it in hand. */
  async function load(jobId: string): Promise<LiveJob | undefined> {
    const record = await readJob(hot, jobId);
    return (
      record && liveJobOf(record, { nowMs: clock.monotonicMs(), storeNowMs: context.storeNowMs() })
    );
  }

  /**
   * From now on this instance has it in hand; one that it has already stays as it is. `node`: for this connection. If
   * that is gone by then, whoever saw it go has seen to its jobs.
   */
  async function takeUp(jobId: string, at?: Place, node?: NodeEnd): Promise<LiveJob | undefined> {
    const record = await readJob(hot, jobId, { payload: true });
    await failpoint("take-up.after-read");
    const held = book.get(jobId);
    if (!record || record.outcome || (at && !isAt(record, at))) return undefined;
    if (node && links.node(node.nodeId) !== node) return undefined;
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
    const words = cutText(reason, 200);
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

  return {
    ...bells,
    ...clients,
    nodes: { ...desk, reported: reports.hear },
    fleetSeen(nodes) {
      roster.refresh(nodes);
      placement.look();
    },
    stopPlacingHere: () => roster.withdraw(instanceId),
    reservedOf: roster.reservedOf,
    openOf(tenants) {
      const open = tenants.reduce((sum, tenant) => sum + book.openOf(tenant), 0);
      let waits = 0;
      for (const { tenant } of waiting.all()) if (tenants.includes(tenant)) waits += 1;
      return { waiting: waits, running: Math.max(0, open - waits) };
    },
    tenantOf: async (jobId) => (await readJob(hot, jobId))?.tenant,
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

/**
 * The same store, and when it was last away. A store that still answers other calls is not away: on a Cluster one master
 * may be down for long, and the deadlines of waiting jobs must not wait for it.
 */
function watchStore(hot: HotStore, clock: Clock): { hot: HotStore; trouble: StoreTrouble } {
  let troubleMs = Number.NEGATIVE_INFINITY;
  let answeredMs = clock.monotonicMs();
  const answered = () => {
    answeredMs = clock.monotonicMs();
  };
  const failed = (error: unknown) => {
    const nowMs = clock.monotonicMs();
    if (isStoreDown(error) && nowMs - answeredMs >= AWAY_AFTER_MS) troubleMs = nowMs;
  };
  const run: HotStore["run"] = (script, keys, args) => {
    const reply = hot.run(script, keys, args);
    reply.then(answered, failed);
    return reply;
  };
  return { hot: { ...hot, run }, trouble: { atMs: () => troubleMs } };
}

const CANCEL_LIMIT_MS = 60_000;
/** The store is away when nothing has answered for so long. */
const AWAY_AFTER_MS = 1_000;
