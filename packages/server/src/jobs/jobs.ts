import type { NodeView } from "@tenure/protocol";
import type { Delivery } from "../delivery/contract.ts";
import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import type { Random } from "../kernel/random.ts";
import { every, type Service } from "../kernel/service.ts";
import type { PostgresStore } from "../store/db.ts";
import type { HotStore } from "../store/hot-store.ts";
import { createCancellation } from "./api/cancellation.ts";
import { createHttpJobs, type HttpJobs } from "./api/http-api.ts";
import { createSessionJobs, type SessionJobs } from "./api/session-api.ts";
import { createAdoption } from "./flow/adoption.ts";
import { AttemptOutcomes } from "./flow/attempt-outcomes.ts";
import { handOverWaiting, observeJobs, openJobsOf } from "./flow/housekeeping.ts";
import { NodeLifecycle } from "./flow/node-lifecycle.ts";
import { cancelOnNode, reportLoss } from "./flow/node-messages.ts";
import { NodeReports } from "./flow/node-reports.ts";
import { createPeerMessages, type PeerMessages } from "./flow/peer-messages.ts";
import { Placement } from "./flow/placement.ts";
import { RecoveryWorker } from "./flow/recovery-worker.ts";
import type { NodeReport } from "./flow/report-batch.ts";
import { ResultDelivery } from "./flow/result-delivery.ts";
import { createRetention } from "./flow/retention.ts";
import { createSessionNotifier } from "./flow/session-notifier.ts";
import { createSlotHandover, type SlotHandover } from "./flow/slot-handover.ts";
import { createSlots } from "./flow/slots.ts";
import type { Step } from "./flow/step.ts";
import { watchStore } from "./flow/store-clock.ts";
import { createStormGuard } from "./flow/storm-guard.ts";
import { Submit } from "./flow/submit.ts";
import { SubmitAdmission } from "./flow/submit-admission.ts";
import { createTracing } from "./flow/tracing.ts";
import { createConnections, type NodeConnection } from "./memory/connections.ts";
import { createNodePool } from "./memory/node-pool.ts";
import { createPendingReports } from "./memory/pending-reports.ts";
import { createTrackedJobs } from "./memory/tracked-jobs.ts";
import type { JobMetrics } from "./metrics.ts";
import type { JobsParts, JobsSettings } from "./parts.ts";
import { createDueJobs } from "./rows/due-jobs.ts";
import { DurableJobs } from "./rows/durable-jobs.ts";
import type { JobRows } from "./rows/job-rows.ts";
import { createLostJobs } from "./rows/lost-jobs.ts";
import { listen, readJob } from "./store/job-store.ts";
import { logUnlessStoreDown } from "./store-errors.ts";
import { Turns } from "./turns/turns.ts";

export interface JobsOptions {
  hot: HotStore;
  db: Pick<PostgresStore, "listen">;
  rows: JobRows;
  instanceId: string;
  settings: JobsSettings;
  clock: Clock;
  random: Random;
  log: Log;
  metrics: JobMetrics;
  delivery: Pick<Delivery, "send" | "sendIf" | "nowMs">;
  /** The hot store was emptied, or brought back an earlier state. */
  onStoreLost: () => void;
}

/** Jobs, from a session to a node and back. */
export interface Jobs extends Service, PeerMessages {
  readonly sessions: SessionJobs;
  readonly http: HttpJobs;
  readonly nodes: NodeJobs;
  /** This instance is about to close the sockets of its nodes: places nothing on them from now on. */
  stopPlacingHere(): void;
  /** Called after every round of membership. */
  fleetSeen(nodes: readonly NodeView[]): void;
  reservedOf(nodeId: string): number;
  /** Jobs of these tenants that this instance tracks: waiting here, and on nodes. */
  openOf(tenants: readonly string[]): { waiting: number; running: number };
  /** The tenant of a job; `undefined` if it has no record any more. */
  tenantOf(jobId: string): Promise<string | undefined>;
}

export interface NodeJobs
  extends Pick<NodeLifecycle, "registering" | "joined" | "left" | "heartbeat"> {
  reported(node: NodeConnection, report: NodeReport): void;
}

const OBSERVE_INTERVAL_MS = 1_000;

export function createJobs(options: JobsOptions): Jobs {
  const { parts, handover } = createParts(options, next);
  const { hot, instanceId, clock, log, tracked, nodePool } = parts;
  const pendingReports = createPendingReports();
  const retention = createRetention(parts);
  const durable = new DurableJobs(parts);
  const results = new ResultDelivery(parts, {
    recordFromRow: (jobId) => durable.recordFromRow(jobId),
  });
  const turns = new Turns(parts);
  const slots = createSlots(parts, next);
  const placement = new Placement(parts, { slots, turns, handover }, next);
  const outcomes = new AttemptOutcomes(
    parts,
    { slots, turns, results, retention, pendingReports, durable },
    next,
  );
  const { load, adopt } = createAdoption(parts);
  const storm = createStormGuard(parts);
  const reports = new NodeReports(
    parts,
    { outcomes, load, storm, pendingReports, durable, slots },
    next,
  );
  const nodes = new NodeLifecycle(parts, { load, adopt }, next);
  const admission = new SubmitAdmission(parts, retention);
  const submit = new Submit(parts, { placement, turns, admission, durable }, next);
  const peers = createPeerMessages(parts, { results, adopt }, next);
  const lost = createLostJobs(parts, { durable, onStoreLost: options.onStoreLost });
  const due = createDueJobs({ ...parts, db: options.db }, { durable, adopt }, next);
  const recovery = new RecoveryWorker(parts, { outcomes, turns, results, retention, adopt }, next);

  /** The whole flow: every step of a job, and the function that does it. */
  function next(step: Step): Promise<void> | void {
    switch (step.do) {
      case "place":
        return placement.place(step.job, step.reserved);
      case "place_on":
        return placement.placeOn(step.job, step.node);
      case "serve":
        return placement.serve(step.pool);
      case "serve_node":
        return placement.serveNode(step.nodeId);
      case "retry":
        return outcomes.retry(step.job, step.reason, step.detail);
      case "finish":
        return outcomes.finish(step.job, step.end, step.written);
      case "expire":
        if (step.deadline === "node_wait") return placement.stopNodeWait(step.job);
        if (step.deadline === "back_off") return outcomes.endBackOff(step.job);
        return outcomes.expire(step.job);
      case "cancel_on_node":
        return cancelOnNode(parts, step.attempt, step.reason);
      case "report_loss":
        return step.job.durable ? lost.refill(step.job) : reportLoss(parts, step.job);
    }
  }

  const api = {
    ...{ submit, results, turns, durable },
    cancellation: createCancellation(parts, {
      outcomes,
      load: async (jobId) => (await load(jobId)) ?? (await durable.load(jobId)),
    }),
    /** The instance that ends the job notifies this one; if the job has ended already, no instance will. */
    async listenFor(jobId: string) {
      const now = await listen(hot, jobId, instanceId);
      if (now?.state === "FINISHED" || now?.state === "RELEASED")
        await results.endedElsewhere(jobId);
    },
  };
  const figures = every(OBSERVE_INTERVAL_MS, async () => observeJobs(parts), {
    clock,
    onError: (error) =>
      log.error({ event: "figures.not-observed", error }, "could not observe jobs; will retry"),
  });
  const services = [
    ...[tracked, placement, handover, nodes, recovery, lost, due, turns, retention, figures],
  ];

  return {
    ...peers,
    sessions: createSessionJobs(parts, api),
    http: createHttpJobs(parts, api),
    nodes: {
      registering: (node) => nodes.registering(node),
      joined: (node, running) => nodes.joined(node, running),
      left: (node, how) => nodes.left(node, how),
      heartbeat: (node, beat) => nodes.heartbeat(node, beat),
      reported: (node, report) => reports.receive(node, report),
    },
    fleetSeen(views) {
      nodePool.refresh(views);
      placement.serveAll();
    },
    stopPlacingHere: () => nodePool.withdraw(instanceId),
    reservedOf: nodePool.reservedOf,
    openOf: (tenants) => openJobsOf(tracked, tenants),
    tenantOf: async (jobId) => (await readJob(hot, jobId))?.tenant,
    start() {
      parts.notifier.start();
      for (const service of services) service.start();
    },
    async stop() {
      outcomes.stop();
      await Promise.all(services.map((service) => service.stop()));
      await handOverWaiting(parts).catch(() => {}); // the store is down: recovered in due time
    },
  };
}

/** The state in memory and the services that the flow files share. */
function createParts(
  options: JobsOptions,
  next: (step: Step) => void,
): { parts: JobsParts; handover: SlotHandover } {
  const { instanceId, clock, log, delivery } = options;
  const { hot, storeClock } = watchStore(options.hot, { clock, readMs: delivery.nowMs });
  const connections = createConnections();
  const nodePool = createNodePool({ clock });
  const tracked = createTrackedJobs({
    clock,
    onDue: (job, deadline) => next({ do: "expire", job, deadline }),
    onQueueChange: (pool) => handover.queueChanged(pool),
    onError: (error) =>
      log.error({ event: "deadlines.not-kept", error }, "a timer of jobs failed; will retry"),
  });
  const handover = createSlotHandover(
    {
      ...{ hot, instanceId, clock, nodePool },
      heads: (pool) => tracked.waiting.heads(pool, nodePool.offersIn(pool)),
      onError: logUnlessStoreDown(
        log,
        { event: "waiting.not-posted" },
        "could not post waiting jobs to other instances; will retry",
      ),
    },
    next,
  );
  const notifier = createSessionNotifier({
    ...{ hot, instanceId, clock, connections },
    onError: (error) =>
      log.debug(
        { event: "session.not-told", error },
        "could not notify a session; it will get the result",
      ),
  });
  const parts = {
    ...options,
    ...{ hot, storeClock, tracked, nodePool, connections, notifier },
    tracing: createTracing(log),
    send: delivery.send,
    sendIf: delivery.sendIf,
  };
  return { parts, handover };
}
