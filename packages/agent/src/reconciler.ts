import type {
  DeploymentReport,
  DeploymentTerm,
  ListedDeployment,
  NodeTraits,
  TenureError,
} from "@tenure/protocol";
import { matchWhole } from "@tenure/protocol/pattern";
import type { Clock, NodeConnection } from "@tenure/sdk";
import { desiredState } from "./claim/desired-state.ts";
import type { ClaimPolicy } from "./claim/policy.ts";
import { type ContactWatchdog, createContactWatchdog } from "./contact-watchdog.ts";
import type { Executor } from "./executor/contract.ts";
import type { AgentLog } from "./log.ts";
import { createLoop, type Loop } from "./loop/loop.ts";
import type { LoopPorts } from "./loop/loop-ports.ts";
import { createReleaseQueue } from "./release-queue.ts";
import { createReports, type Reports } from "./reports.ts";
import { createMembersReader, serverPorts } from "./server-ports.ts";
import { createStopTimes } from "./stop-times.ts";

export interface ReconcilerOptions {
  clock: Clock;
  random: () => number;
  log: AgentLog;
  /** The address, labels and permissions from this node's settings. */
  traits: NodeTraits;
  /** `undefined`: the policy `none`. */
  policy: ClaimPolicy | undefined;
  intervalMs: number;
  selfStopMs: number;
  stopGraceMs: number;
  callTimeoutMs: number;
  connection: Pick<NodeConnection, "call" | "state" | "members">;
  executor: Pick<Executor, "setDesired" | "suspend" | "resume" | "reportAll">;
  /** Replaces the loop's ports, in a simulation. */
  wrapPorts?: (ports: LoopPorts) => LoopPorts;
}

/**
 * Keeps the executor in line with the server: reads the list, claims, sets the desired state, reports the actual states,
 * and stops deployments without contact. Neither sockets nor processes are in it, so that a simulation runs the same code.
 *
 * Invariants: the executor runs only rows of the last list; after a suspension nothing resumes before a list read later
 * and a report of every deployment that the server accepted; a report of a generation that is over refreshes the list.
 */
export interface Reconciler {
  readonly counts: Loop["counts"];
  start(): void;
  /** Handles a new connection. `labels`: those the server sets for this node; `features`: those it grants. */
  connected(labels: NodeTraits["labels"], features?: readonly string[]): void;
  /** Handles news of deployments or members: runs a pass soon. */
  wake(): void;
  contact: ContactWatchdog["contact"];
  replaced: ContactWatchdog["replaced"];
  /** Handles a state from the executor. */
  reported(report: DeploymentReport): void;
  /** Starts no further pass and, as children end, releases their deployments. Resolves when the last pass has ended. */
  beginStop(): Promise<void>;
  flushReports: Reports["flush"];
  stop(): void;
}

/** How long a node leaves a row alone that it failed to prepare for a hand-over. */
const AVOID_MS = 60_000;

/** The state of a reconciler. */
interface State {
  /** With the labels the server sets, from the last connection. */
  traits: NodeTraits;
  /** Whether the server of the present connection sends a part of the list. */
  readsSubset: boolean;
  /** The rows for this node, of the last list. */
  rows: readonly ListedDeployment[];
  /** Rows that this node failed to prepare, and until when it leaves them alone. */
  avoidedUntilMs: Map<string, number>;
  /** Reports refused since the last confirmation began. */
  refusals: number;
  isStopping: boolean;
}

const createState = (traits: NodeTraits): State => ({
  traits,
  readsSubset: false,
  rows: [],
  avoidedUntilMs: new Map(),
  refusals: 0,
  isStopping: false,
});

export function createReconciler(options: ReconcilerOptions): Reconciler {
  const { clock, log, policy, connection, executor, callTimeoutMs } = options;
  const me = options.traits.address;
  const state = createState(options.traits);
  const stopTimes = createStopTimes(options);
  const reports = createReports({ clock, send, refused });
  const releases = createReleaseQueue((stopped) =>
    connection.call("deployment.release", { addresses: [me], stopped }),
  );
  const ports = serverPorts({
    ...{ connection, me, clock, members: createMembersReader(connection) },
    readsSubset: () => state.readsSubset,
    random: options.random,
    changed,
    avoids: (row) => isAvoided(state, row, clock.monotonicMs()),
    log,
  });
  const loop = createLoop(options.wrapPorts?.(ports) ?? ports, {
    intervalMs: options.intervalMs,
    policy,
    matches: matchWhole,
  });
  const watchdog = createContactWatchdog({
    clock,
    selfStopMs: options.selfStopMs,
    suspend(reason, silentMs) {
      const message = `deployments stop on this node: ${reason}`;
      log({ level: "warn", event: "node.suspended", message, details: { silentMs } });
      executor.suspend(reason, (row) => stopTimes.of(row) > silentMs);
    },
    nextStopMs(silentMs) {
      const later = state.rows.map((row) => stopTimes.of(row)).filter((ms) => ms > silentMs);
      return later.length > 0 ? Math.min(...later) : undefined;
    },
    refresh,
    resume() {
      log({ level: "info", event: "node.resumed", message: "deployments run on this node again" });
      executor.resume();
    },
  });

  function changed(rows: readonly ListedDeployment[], isFresh: boolean): void {
    if (state.isStopping) return;
    state.rows = rows;
    stopTimes.retain(rows);
    executor.setDesired(desiredState(rows, state.traits, matchWhole));
    if (isFresh && watchdog.isSuspended) void confirm();
  }

  /**
   * Confirms a list before anything resumes, with a report of every deployment, which Postgres answers: the list is from an
   * instance's cache, and that may be behind in the very outage that suspended this node.
   */
  async function confirm(): Promise<void> {
    state.refusals = 0;
    executor.reportAll();
    const isFlushed = await reports.flush(callTimeoutMs);
    if (isFlushed && state.refusals === 0) watchdog.refreshed();
    else if (watchdog.isSuspended) refresh();
  }

  function refresh(): void {
    loop.invalidate();
    loop.wake();
  }

  async function send(report: DeploymentReport): Promise<unknown> {
    stopTimes.sent(report);
    const answer = await connection.call("deployment.report", report);
    stopTimes.acknowledged(report, answer.lost_after_ms);
    // After the report: a release begins the next generation, and a report of this one would be refused.
    const { deployment_id: id, generation } = report;
    if (policy && state.isStopping && report.state === "stopped" && isReleasable(state, id))
      releases.add({ id, generation });
    return answer;
  }

  /** A refused report of a row that this node believes to own means that the list is old. */
  function refused({ deployment_id, generation }: DeploymentReport, error: TenureError): void {
    if (!isCurrent(state, deployment_id, generation) || state.isStopping) return;
    state.refusals += 1;
    log({
      level: "warn",
      event: "report.refused",
      message: `server refused a report; reading the deployments again: ${error.message}`,
      details: { code: error.code, deploymentId: deployment_id, generation },
    });
    refresh();
  }

  return {
    counts: loop.counts,
    start() {
      watchdog.start();
      loop.start();
    },
    connected(labels, features = []) {
      adopt(state, options.traits, { labels, features });
      executor.reportAll();
      reports.connected();
      loop.wake();
    },
    wake: loop.wake,
    contact: watchdog.contact,
    replaced: watchdog.replaced,
    reported(report) {
      avoidIfFailed(state, report, clock.monotonicMs() + AVOID_MS);
      reports.put(report);
    },
    async beginStop() {
      state.isStopping = true;
      watchdog.stop();
      await loop.stop();
    },
    flushReports: reports.flush,
    stop: reports.stop,
  };
}

/** Takes over what the server of a new connection grants. */
function adopt(
  state: State,
  traits: NodeTraits,
  { labels, features }: { labels: NodeTraits["labels"]; features: readonly string[] },
): void {
  state.readsSubset = features.includes("list_subset");
  state.traits = { ...traits, labels: { ...traits.labels, ...labels } };
}

/** Whether the last list has a row in this generation. */
const isCurrent = ({ rows }: State, id: string, generation: number): boolean =>
  rows.some((row) => row.id === id && row.generation === generation);

/** Whether this node owns the row, and another node may own it at once. */
const isReleasable = ({ rows, traits }: State, id: string): boolean =>
  rows.some(
    (row) =>
      row.id === id &&
      row.type === "deployment" &&
      row.address === traits.address &&
      row.lost_after_ms === 0,
  );

/** Leaves a row alone for a while if this node failed to prepare it for a hand-over. */
function avoidIfFailed(state: State, report: DeploymentReport, untilMs: number): void {
  const me = state.traits.address;
  const row = state.rows.find(({ id }) => id === report.deployment_id);
  const isNext = row?.moving_to === me && row.address !== me;
  if (isNext && (report.state === "failed" || report.state === "refused"))
    state.avoidedUntilMs.set(report.deployment_id, untilMs);
}

function isAvoided({ avoidedUntilMs }: State, { id }: DeploymentTerm, nowMs: number): boolean {
  if ((avoidedUntilMs.get(id) ?? 0) > nowMs) return true;
  avoidedUntilMs.delete(id);
  return false;
}
