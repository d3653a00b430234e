import { hostname } from "node:os";
import {
  type DeploymentReport,
  type DeploymentTerm,
  LEAVING_TAG,
  type ListedDeployment,
  type NodeTraits,
  type TenureError,
} from "@tenure/protocol";
import { matchWhole } from "@tenure/protocol/pattern";
import {
  type ConnectionTuning,
  createNodeConnection,
  type Down,
  type NodeConnection,
  type NodeEvents,
  systemClock,
} from "@tenure/sdk";
import { openBootFile } from "./boot-file.ts";
import { wantedHere } from "./claim/desired-state.ts";
import { type ClaimPolicy, claimPolicyOf } from "./claim/policy.ts";
import type { AgentConfig } from "./config.ts";
import { createContactWatch } from "./contact-watchdog.ts";
import type { Executor, ExecutorOptions, RunningChild } from "./executor/contract.ts";
import { createExecutor } from "./executor/executor.ts";
import { createGiveBack } from "./give-back.ts";
import { loadIdentity, type NodeIdentity } from "./identity.ts";
import { type AgentLog, createAgentLog } from "./log.ts";
import { createLoop } from "./loop/loop.ts";
import type { LoopCounts } from "./loop/pass.ts";
import { createReports } from "./reports.ts";
import { createSampler, type Sampler } from "./sampler.ts";
import { createServerCalls } from "./server-calls.ts";
import { createMembersLook, serverPorts } from "./server-ports.ts";
import { createStopTimes } from "./stop-times.ts";

export interface AgentOptions {
  log?: AgentLog;
  version?: string;
  /** Instead of the key that the settings name. */
  identity?: NodeIdentity;
  /** Instead of the real one; `createNoExecutor` claims without running anything. */
  executor?: (options: ExecutorOptions) => Promise<Executor>;
  /** The umask of the children; without it they have the agent's. */
  childUmask?: number;
  /** In place of the machine's own; `undefined` when it cannot tell. */
  sampler?: { sample(): ReturnType<Sampler["sample"]> | undefined };
  /** Claim policies of one's own, by their names in lower case. */
  policies?: ReadonlyMap<string, ClaimPolicy>;
  /** Every time a connection is ready. */
  onReady?: (where: { instanceId: string }) => void;
  tuning?: Pick<ConnectionTuning, "clock" | "random" | "backoff" | "limits">;
}

export interface Agent {
  readonly address: string;
  readonly name: string;
  readonly connection: Pick<NodeConnection, "state" | "lastContactMs" | "members">;
  readonly counts: Readonly<LoopCounts>;
  running(): readonly RunningChild[];
  /** Stops every child, says goodbye and closes. */
  stop(): Promise<void>;
}

/** How long a node leaves a row alone that it failed to prepare for taking over. */
const AVOID_MS = 60_000;
const GOODBYE_LIMIT_MS = 2_000;
const CALL_LIMIT_MS = 4_000;

/** A node-unit: claims deployments by the policy, runs what it owns and every daemon, and says how they are. */
export async function startAgent(config: AgentConfig, options: AgentOptions = {}): Promise<Agent> {
  const { log = createAgentLog(), tuning = {} } = options;
  const { clock = systemClock, random = Math.random } = tuning;
  const identity = options.identity ?? (await loadIdentity(config));
  const policy = claimPolicyOf(config.claim_policy, config, options.policies);
  const name = config.name ?? hostname();
  const sampler = options.sampler ?? createSampler();
  const own = {
    address: identity.address,
    labels: config.labels,
    trusted_package_regexp: config.trusted_package_regexp ?? "",
    custom_command: config.custom_command,
  };
  /** With the labels that the server sets, from the last connection. */
  let traits: NodeTraits = own;
  const callTimeoutMs = Math.min(CALL_LIMIT_MS, config.scheduler_interval_ms * 0.8);
  const avoidedUntilMs = new Map<string, number>();
  let rows: readonly ListedDeployment[] = [];
  let isStopping = false;
  let refusals = 0;

  const stopTimes = createStopTimes({
    selfStopMs: config.self_stop_ms,
    stopGraceMs: config.stop_grace_ms,
  });
  const reports = createReports({ clock, send: sendReport, refused });
  const giveBack = createGiveBack((stopped) =>
    connection.call("deployment.release", { addresses: [identity.address], stopped }),
  );
  const executor = await (options.executor ?? createExecutor)({
    dataDir: config.data_dir,
    tenureUrl: httpUrl(config.host_urls[0] ?? ""),
    stopGraceMs: config.stop_grace_ms,
    startConcurrencyMax: config.start_concurrency_max,
    packagesMaxMb: config.packages_max_mb,
    workKeepDays: config.work_keep_days,
    ...(options.childUmask !== undefined && { childUmask: options.childUmask }),
    ...(config.run_as && { runAs: config.run_as }),
    ...(config.wrapper && { wrapper: config.wrapper }),
    report: reported,
    log,
    clock,
  });

  // Only under the lock of the directory, which the real executor has by now.
  const bootFile = options.executor ? undefined : openBootFile(config.data_dir, identity);
  const connection: NodeConnection = createNodeConnection({
    ...tuning,
    urls: config.host_urls,
    key: identity,
    bootId: identity.bootId,
    formerBootId: bootFile?.former,
    token: config.host_token,
    describe: () => ({
      ...own,
      token_labels: true,
      name,
      version: options.version ?? "0",
      tags: {
        node_unit: true,
        node_unit_address: identity.address,
        ...(isStopping && { [LEAVING_TAG]: true }),
      },
      claim_policy: config.claim_policy,
    }),
    resourceUsage: () => sampler.sample(),
    handlers: createServerCalls(
      () => executor,
      (message) => connection.send(message),
    ),
    callTimeoutMs,
    on: connectionEvents(),
  });
  const loop = createLoop(
    serverPorts({
      connection,
      look: createMembersLook(connection),
      me: identity.address,
      clock,
      random,
      changed,
      avoids,
      log,
    }),
    { intervalMs: config.scheduler_interval_ms, policy, matches: matchWhole },
  );
  const watch = createContactWatch({
    clock,
    selfStopMs: config.self_stop_ms,
    suspend(reason, silentMs) {
      log({ level: "warn", event: "node.suspended", message: reason, details: { silentMs } });
      executor.suspend(reason, (row) => stopTimes.of(row) > silentMs);
    },
    nextStopMs(silentMs) {
      const later = rows.map((row) => stopTimes.of(row)).filter((ms) => ms > silentMs);
      return later.length > 0 ? Math.min(...later) : undefined;
    },
    askForList,
    resume() {
      log({ level: "info", event: "node.resumed", message: "deployments may run here again" });
      executor.resume();
    },
  });

  function connectionEvents(): NodeEvents {
    let lastLoss: string | undefined;
    return {
      ready({ instance_id, epoch, heartbeat_interval_ms, labels }) {
        traits = { ...own, labels: { ...own.labels, ...labels } };
        lastLoss = undefined;
        bootFile?.registered();
        if (config.self_stop_ms <= 2 * heartbeat_interval_ms) doubtSelfStop(heartbeat_interval_ms);
        log({
          level: "info",
          event: "connection.ready",
          message: "connected",
          details: { instanceId: instance_id, epoch },
        });
        executor.reportAll();
        reports.connected();
        loop.wake();
        options.onReady?.({ instanceId: instance_id });
      },
      down(down) {
        if (down.kind === "replaced") watch.replaced(down.reason);
        // Said once per kind: a server that is away for an hour is one thing that happened, not hundreds.
        if (down.kind !== lastLoss) log(lossLine(down));
        lastLoss = down.kind;
      },
      message: ({ type }) => type === "deployments_changed" && loop.wake(),
      members: () => loop.wake(),
      contact: (atMs) => watch.contact(atMs),
      control(command) {
        const message = command === "drain" ? "claims nothing, and hands over" : "claims again";
        log({ level: "info", event: "drain.changed", message, details: { command } });
        loop.wake();
      },
      problem: ({ code, message }) =>
        log({ level: "warn", event: "connection.doubted", message, details: { code } }),
    };
  }

  /** One heartbeat that is late would stop everything that runs here. */
  function doubtSelfStop(heartbeatMs: number): void {
    log({
      level: "warn",
      event: "config.doubted",
      message: `NODE_UNIT_SELF_STOP_MS should be more than two heartbeats of ${heartbeatMs} ms`,
    });
  }

  function changed(now: readonly ListedDeployment[], isFresh: boolean): void {
    if (isStopping) return;
    rows = now;
    stopTimes.keep(rows);
    executor.want(wantedHere(rows, traits, matchWhole));
    if (isFresh && watch.isSuspended) void confirm();
  }

  /**
   * Before anything runs again the server is asked by a report of every deployment, which Postgres answers: the list
   * comes from an instance's copy, and that may be behind in the very outage that made us stop.
   */
  async function confirm(): Promise<void> {
    refusals = 0;
    executor.reportAll();
    const isHeard = await reports.settled(callTimeoutMs);
    if (isHeard && refusals === 0) watch.refreshed();
    else if (watch.isSuspended) askForList();
  }

  function askForList(): void {
    loop.distrust();
    loop.wake();
  }

  async function sendReport(report: DeploymentReport): Promise<unknown> {
    stopTimes.sent(report);
    const answer = await connection.call("deployment.report", report);
    stopTimes.heard(report, answer.lost_after_ms);
    // After its report: a release begins the next term, and a report of this one would be refused.
    if (isStopping && report.state === "stopped") ended(report);
    return answer;
  }

  function ended({ deployment_id: id, generation }: DeploymentReport): void {
    const row = rows.find((one) => one.id === id);
    const isOwn = row?.type === "deployment" && row.address === identity.address;
    if (policy && isOwn && row.lost_after_ms === 0) giveBack.add({ id, generation });
  }

  function reported(report: DeploymentReport): void {
    const row = rows.find(({ id }) => id === report.deployment_id);
    const isNext = row?.moving_to === identity.address && row.address !== identity.address;
    if (isNext && (report.state === "failed" || report.state === "refused"))
      avoidedUntilMs.set(report.deployment_id, clock.monotonicMs() + AVOID_MS);
    reports.put(report);
  }

  function avoids({ id }: DeploymentTerm): boolean {
    const untilMs = avoidedUntilMs.get(id) ?? 0;
    if (untilMs > clock.monotonicMs()) return true;
    avoidedUntilMs.delete(id);
    return false;
  }

  /** A report of a term that we believe is ours was refused: somebody else knows better, so look again. */
  function refused({ deployment_id, generation }: DeploymentReport, error: TenureError): void {
    const isOurs = rows.some((row) => row.id === deployment_id && row.generation === generation);
    if (!isOurs || isStopping) return;
    refusals += 1;
    log({
      level: "warn",
      event: "report.refused",
      message: error.message,
      details: { code: error.code, deploymentId: deployment_id, generation },
    });
    askForList();
  }

  watch.start();
  connection.start();
  loop.start();
  return {
    address: identity.address,
    name,
    connection,
    counts: loop.counts,
    running: () => executor.running(),
    async stop() {
      isStopping = true;
      watch.stop();
      await loop.stop();
      await executor.stop();
      if (connection.state === "ready") await reports.settled(GOODBYE_LIMIT_MS);
      reports.stop();
      await connection.close();
    },
  };
}

/** Losses that pass by themselves, and those that only a person can end. */
function lossLine({ kind, reason, url, error, wasReady }: Down): Parameters<AgentLog>[0] {
  const details = { kind, url, wasReady, ...(error && { code: error.code }) };
  if (!["unauthenticated", "forbidden", "replaced", "refused"].includes(kind))
    return { level: "warn", event: "connection.lost", message: reason, details };
  const message =
    kind === "replaced"
      ? `another process answers under this node's address, so nothing runs here: ${reason}`
      : reason;
  return { level: "error", event: "connection.refused", message, details };
}

/** Children speak HTTP, whatever the agent itself connects by. */
const httpUrl = (url: string): string => url.replace(/^ws(s?):/, "http$1:");
