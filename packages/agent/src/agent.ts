import { hostname } from "node:os";
import { setTimeout as wait } from "node:timers/promises";
import { LEAVING_TAG, type NodeTraits, SECRETS_TAG } from "@tenure/protocol";
import {
  type ConnectionTuning,
  createNodeConnection,
  type Down,
  type NodeConnection,
  type NodeConnectionOptions,
  type NodeEvents,
  systemClock,
} from "@tenure/sdk";
import { openBootFile } from "./boot-file.ts";
import { type ClaimPolicy, claimPolicyOf, isBuiltInPolicy } from "./claim/policy.ts";
import type { AgentConfig } from "./config.ts";
import { nodeToken } from "./enrol/enrol.ts";
import type { Executor, ExecutorOptions, RunningChild } from "./executor/contract.ts";
import { createExecutor } from "./executor/executor.ts";
import { loadIdentity, type NodeIdentity } from "./identity.ts";
import { type AgentLog, createAgentLog } from "./log.ts";
import type { LoopCounts } from "./loop/pass.ts";
import { createReconciler, type Reconciler } from "./reconciler.ts";
import { createSampler, type Sampler } from "./sampler.ts";
import { createServerCalls } from "./server-calls.ts";
import { tlsOf } from "./tls-files.ts";

export interface AgentOptions {
  log?: AgentLog;
  version?: string;
  /** Replaces the key that the settings name. */
  identity?: NodeIdentity;
  /** Replaces the real executor; `createNullExecutor` claims without running anything. */
  executor?: (options: ExecutorOptions) => Promise<Executor>;
  /** The umask of the children; the agent's by default. */
  childUmask?: number;
  /** Replaces the machine's sampler; `undefined`: no sample is available. */
  sampler?: { sample(): ReturnType<Sampler["sample"]> | undefined };
  /** Additional claim policies, by their names in lower case. */
  policies?: ReadonlyMap<string, ClaimPolicy>;
  /** Ends the wait for an enrolment; `startAgent` then rejects. */
  signal?: AbortSignal;
  /** Called every time a connection is ready. */
  onReady?: (where: { instanceId: string }) => void;
  tuning?: Pick<ConnectionTuning, "clock" | "random" | "backoff" | "limits" | "readFrame"> &
    Pick<NodeConnectionOptions, "memberMap">;
}

export interface Agent {
  readonly address: string;
  readonly name: string;
  readonly connection: Pick<NodeConnection, "state" | "lastContactMs" | "members">;
  readonly counts: Readonly<LoopCounts>;
  running(): readonly RunningChild[];
  /** Stops every child, sends the last reports and closes the connection. */
  stop(): Promise<void>;
}

const LAST_REPORTS_MS = 2_000;
const CALL_MS_MAX = 4_000;

/** Starts a node-unit: claims deployments by its policy, runs what it owns and every daemon, and reports their states. */
export async function startAgent(config: AgentConfig, options: AgentOptions = {}): Promise<Agent> {
  const { log = createAgentLog(), tuning = {} } = options;
  const { clock = systemClock, random = Math.random } = tuning;
  const identity = options.identity ?? (await loadIdentity(config));
  const own = await nodeToken({
    ...{ config, identity, log, signal: options.signal },
    sleep: (ms, signal) => wait(ms, undefined, { signal }).catch(() => {}),
  });
  const policy = claimPolicyOf(config.claim_policy, config, options.policies);
  const name = config.name ?? own.name ?? hostname();
  const traits = traitsOf(config, identity);
  const sampler = options.sampler ?? createSampler();
  const callTimeoutMs = Math.min(CALL_MS_MAX, config.scheduler_interval_ms * 0.8);
  let isStopping = false;

  const executor = await (options.executor ?? createExecutor)({
    ...executorOptionsOf(config),
    tenureUrl: () => connection.url() ?? httpUrl(config.host_urls[0] ?? ""),
    ...(options.childUmask !== undefined && { childUmask: options.childUmask }),
    readSecrets: async ({ deploymentId: id, generation }) =>
      (await connection.call("deployment.secrets", { id, generation })).values,
    report: (report) => reconciler.reported(report),
    log,
    clock,
  });
  warnOfPlainText(config, log);
  // Opened under the lock of the data directory, which the real executor holds by now.
  const bootFile = options.executor ? undefined : openBootFile(config.data_dir, identity);
  const connection: NodeConnection = createNodeConnection({
    ...tuning,
    urls: config.host_urls,
    key: identity,
    bootId: identity.bootId,
    formerBootId: bootFile?.former,
    token: own.token,
    tls: tlsOf(config),
    // A policy of the user may read every row.
    features: isBuiltInPolicy(config.claim_policy) ? ["list_subset"] : undefined,
    describe: () => ({
      ...traits,
      token_labels: true,
      name,
      version: options.version ?? "0",
      tags: {
        node_unit: true,
        node_unit_address: identity.address,
        ...traits.tags,
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
    on: connectionEvents({
      log,
      selfStopMs: config.self_stop_ms,
      reconciler: () => reconciler,
      onReady(instanceId) {
        bootFile?.registered();
        options.onReady?.({ instanceId });
      },
    }),
  });
  const reconciler = createReconciler({
    clock,
    random,
    log,
    traits,
    policy,
    intervalMs: config.scheduler_interval_ms,
    selfStopMs: config.self_stop_ms,
    stopGraceMs: config.stop_grace_ms,
    callTimeoutMs,
    connection,
    executor,
  });

  connection.start();
  reconciler.start();
  return {
    address: identity.address,
    name,
    connection,
    counts: reconciler.counts,
    running: () => executor.running(),
    async stop() {
      isStopping = true;
      await reconciler.beginStop();
      await executor.stop();
      if (connection.state === "ready") await reconciler.flushReports(LAST_REPORTS_MS);
      reconciler.stop();
      await connection.close();
    },
  };
}

/** In between, a machine can read the token, and act as the server, whose commands run here. */
function warnOfPlainText({ host_urls, host_token }: AgentConfig, log: AgentLog): void {
  if (host_token === undefined || !host_urls.some(isPlainBeyondLoopback)) return;
  log({
    level: "warn",
    event: "config.doubted",
    message:
      "HOST_URL is not https:// or wss://: the token, and the environments of deployments, travel unencrypted unless the network encrypts them",
  });
}

const isPlainBeyondLoopback = (url: string): boolean =>
  /^(http|ws):/.test(url) && !/^(localhost|127\.[\d.]+|\[::1\])$/.test(new URL(url).hostname);

const traitsOf = (config: AgentConfig, { address }: NodeIdentity): NodeTraits => ({
  address,
  labels: config.labels,
  trusted_package_regexp: config.trusted_package_regexp ?? "",
  custom_command: config.custom_command,
  tags: { [SECRETS_TAG]: true },
});

const executorOptionsOf = (
  config: AgentConfig,
): Omit<ExecutorOptions, "tenureUrl" | "readSecrets" | "report" | "log" | "clock"> => ({
  dataDir: config.data_dir,
  ...(config.host_ca_file !== undefined && { tenureCaFile: config.host_ca_file }),
  stopGraceMs: config.stop_grace_ms,
  startConcurrencyMax: config.start_concurrency_max,
  packagesMaxMb: config.packages_max_mb,
  workKeepDays: config.work_keep_days,
  ...(config.run_as && { runAs: config.run_as }),
  ...(config.wrapper && { wrapper: config.wrapper }),
});

/** Children use HTTP, also when the agent connects by WebSocket URLs. */
const httpUrl = (url: string): string => url.replace(/^ws(s?):/, "http$1:");

/** Logs what happens to the connection and passes it on to the reconciler. */
function connectionEvents({
  log,
  selfStopMs,
  reconciler,
  onReady,
}: {
  log: AgentLog;
  selfStopMs: number;
  /** Created after the connection. */
  reconciler: () => Reconciler;
  onReady: (instanceId: string) => void;
}): NodeEvents {
  let lastLoss: string | undefined;
  return {
    ready({ instance_id, epoch, heartbeat_interval_ms, labels, features }) {
      lastLoss = undefined;
      // A single late heartbeat would stop every deployment here.
      if (selfStopMs <= 2 * heartbeat_interval_ms)
        log({
          level: "warn",
          event: "config.doubted",
          message: `NODE_UNIT_SELF_STOP_MS is ${selfStopMs}; it should be more than two heartbeats of ${heartbeat_interval_ms} ms`,
        });
      log({
        level: "info",
        event: "connection.ready",
        message: "connected to the server",
        details: { instanceId: instance_id, epoch },
      });
      reconciler().connected(labels ?? {}, features);
      onReady(instance_id);
    },
    down(down) {
      if (down.kind === "replaced") reconciler().replaced(down.reason);
      // Once per kind: a server that is down for an hour is one event, not hundreds.
      if (down.kind !== lastLoss) log(lossLine(down));
      lastLoss = down.kind;
    },
    message: ({ type }) => type === "deployments_changed" && reconciler().wake(),
    members: () => reconciler().wake(),
    contact: (atMs) => reconciler().contact(atMs),
    control(command) {
      const message =
        command === "drain"
          ? "node drains: it claims nothing and hands its deployments over"
          : "node claims deployments again";
      log({ level: "info", event: "drain.changed", message, details: { command } });
      reconciler().wake();
    },
    problem: ({ code, message }) =>
      log({ level: "warn", event: "connection.doubted", message, details: { code } }),
  };
}

/** A warning for losses that a retry may end, an error for those that need an operator. */
function lossLine({ kind, reason, url, error, wasReady }: Down): Parameters<AgentLog>[0] {
  const details = { kind, url, wasReady, ...(error && { code: error.code }) };
  if (!["unauthenticated", "forbidden", "replaced", "refused"].includes(kind))
    return {
      level: "warn",
      event: "connection.lost",
      message: `connection lost; will reconnect: ${reason}`,
      details,
    };
  const message =
    kind === "replaced"
      ? `another process has this node's address; deployments stop here: ${reason}`
      : `server refused the connection: ${reason}`;
  return { level: "error", event: "connection.refused", message, details };
}
