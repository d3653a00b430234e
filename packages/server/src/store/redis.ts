import { TenureError } from "@tenure/protocol";
import { Cluster, Redis } from "ioredis";
import type { HotStore } from "./hot-store.ts";
import type { Script } from "./script.ts";
import { batchScripts, type Evaluation, type ScriptCall } from "./script-batch.ts";

export interface RedisSettings {
  mode: "single" | "cluster";
  urls: string[];
  prefix: string;
  /** How long one command may take. Above it the outcome is unknown. */
  commandTimeoutMs?: number;
  onError?: (error: unknown) => void;
  /** Counts every script by name and result; the seed's `scheduler_phase2_redis_op_total`. */
  onOp?: (op: string, result: "ok" | "error") => void;
  /** Only in tests: another clock than Redis' own, in milliseconds. */
  nowMs?: () => number | undefined;
  /** Only in tests and behind address translation: where a cluster node is really reached. */
  natMap?: Record<string, { host: string; port: number }>;
}

export interface RedisStore extends HotStore {
  /** For commands that are not scripts: INFO in the self-check, the group commands of the inbox. */
  readonly client: Redis | Cluster;
  /**
   * A connection of its own, for a command that blocks: on a shared one every other command waits behind
   * it (2.9 s measured against 1.1 ms). On a Cluster it follows `key` to its node. `blockMsMax` is the longest
   * its commands block; the time limit of the others comes on top.
   */
  blockingConnection(blockMsMax?: number): Redis | Cluster;
}

/**
 * One Redis or a Redis Cluster.
 *
 * No command is ever sent twice by the client. A reply that is lost leaves the outcome unknown, the caller
 * is told `DEPENDENCY_DOWN`, and calls again if the script allows it: every script gives the same answer to
 * the same question. While there is no connection a command fails at once instead of waiting in a queue.
 */
export function openRedis(settings: RedisSettings): RedisStore {
  const client = connect(settings, { autoPipelining: true });
  const subscriber = connect(settings, { autoPipelining: false });
  const evaluateHere = (evaluation: Evaluation) => evaluate(client, evaluation);
  const runScript =
    settings.mode === "single"
      ? batchScripts(evaluateHere)
      : ({ script, keys, argv }: ScriptCall) => evaluateHere({ ...script, keys, argv });
  const opened = new Set([client, subscriber]);
  const heard = new Map<string, Array<(message: string) => void>>();
  subscriber.on("message", (channel: string, message: string) => {
    for (const hear of heard.get(channel) ?? []) hear(message);
  });
  // Without an offline queue a subscription before the connection is up would be refused, so it is made,
  // and made again, whenever the connection is ready.
  subscriber.on("ready", () => {
    if (heard.size > 0)
      subscriber.subscribe(...heard.keys()).catch((error) => settings.onError?.(error));
  });

  return {
    kind: settings.mode === "cluster" ? "redis-cluster" : "redis",
    prefix: settings.prefix,
    client,
    blockingConnection(blockMsMax = BLOCK_MS_MAX) {
      const connection = connect(settings, { autoPipelining: false, blockMsMax });
      opened.add(connection);
      connection.once("end", () => opened.delete(connection));
      return connection;
    },
    async run(script, keys, args) {
      try {
        const call = callOf(script, keys, args, settings.nowMs?.());
        const reply = script.reply.parse(await runScript(call));
        settings.onOp?.(script.name, "ok");
        return reply;
      } catch (error) {
        settings.onOp?.(script.name, "error");
        return unavailable(error);
      }
    },
    async publish(channel, message) {
      await client.publish(channel, message).catch(unavailable);
    },
    async subscribe(channel, hear) {
      heard.set(channel, [...(heard.get(channel) ?? []), hear]);
      if (subscriber.status === "ready") await subscriber.subscribe(channel).catch(unavailable);
    },
    onBack(hear) {
      client.on("ready", hear);
    },
    async ping() {
      // A write: a Redis that is full, or cannot save, answers every other question as if nothing were wrong.
      await (client instanceof Cluster
        ? pingCluster(client)
        : client.set(`${settings.prefix}:ping`, "1", "PX", PING_KEPT_MS)
      ).catch(unavailable);
    },
    async close() {
      for (const connection of opened) connection.disconnect();
    },
  };
}

/** Resolves when the first connection is up; a wrong URL or a server that is down is one clear sentence. */
export async function waitUntilReady(store: RedisStore, limitMs: number): Promise<void> {
  const { client } = store;
  if (client.status === "ready") return;
  let lastError: unknown = `no connection within ${limitMs} ms`;
  const onError = (error: unknown) => {
    lastError = error;
  };
  client.on("error", onError);
  try {
    await new Promise<void>((resolve, reject) => {
      const timer = setTimeout(() => reject(lastError), limitMs);
      client.once("ready", () => {
        clearTimeout(timer);
        resolve();
      });
    });
  } catch (error) {
    throw dependencyDown(error);
  } finally {
    client.off("error", onError);
  }
}

function callOf<Key extends string, Args>(
  script: Script<Key, Args, unknown>,
  keys: Record<Key, string>,
  args: Args,
  nowMs: number | undefined,
): ScriptCall {
  // Parsed on the way out too: JSON would quietly turn a NaN into null.
  const parsed = script.args.parse(args) as Record<string, unknown>;
  const argv = [NO_ARGUMENTS];
  const texts: readonly string[] = script.texts;
  for (const name of texts) argv.push(parsed[name] as string);
  if (nowMs !== undefined || Object.keys(parsed).length > texts.length) {
    const named: Record<string, unknown> = { now_ms: nowMs };
    for (const name in parsed) if (!texts.includes(name)) named[name] = parsed[name];
    argv[0] = JSON.stringify(named);
  }
  return { script, keys: script.keys.map((key) => keys[key]), argv };
}

/** Nothing but texts, as on the way of every job. */
const NO_ARGUMENTS = "{}";

async function evaluate(
  client: Redis | Cluster,
  { lua, sha, keys, argv }: Evaluation,
): Promise<unknown> {
  try {
    return await client.evalsha(sha, keys.length, ...keys, ...argv);
  } catch (error) {
    if (!String(error).includes("NOSCRIPT")) throw error;
    // First use on this server; from now on it is cached.
    return await client.eval(lua, keys.length, ...keys, ...argv);
  }
}

/**
 * Asks every master, and each whether all slots are served: a PING goes to any one node and is answered also
 * while a third of the keys is out of reach.
 */
async function pingCluster(cluster: Cluster): Promise<void> {
  const masters = cluster.nodes("master");
  const states = await Promise.all(masters.map((master) => master.cluster("INFO")));
  if (states.length === 0) throw new Error("no master of the cluster is known");
  const memories = await Promise.all(masters.map((master) => master.info("memory")));
  if (memories.some(isFull)) throw new Error("a master of the cluster has no memory left");
  if (!states.every((state) => state.includes("cluster_state:ok")))
    throw new Error("the cluster does not serve all slots");
}

const PING_KEPT_MS = 10_000;

/** Which keys are on which master is not known here, so their own word is taken instead of a write. */
function isFull(memory: string): boolean {
  const figure = (name: string) =>
    Number(new RegExp(`^${name}:(\\d+)`, "m").exec(memory)?.[1] ?? 0);
  return figure("maxmemory") > 0 && figure("used_memory") >= figure("maxmemory");
}

interface ConnectionUse {
  autoPipelining: boolean;
  blockMsMax?: number;
}

// The longest `stream_block_ms` an operator can set.
const BLOCK_MS_MAX = 60_000;

function connect(settings: RedisSettings, use: ConnectionUse): Redis | Cluster {
  const commandTimeout = (settings.commandTimeoutMs ?? 2_000) + (use.blockMsMax ?? 0);
  const common = {
    connectTimeout: 5_000,
    // ioredis would send unanswered commands again after a reconnect: one lost reply made two stream entries.
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 1,
    enableOfflineQueue: false,
    autoResubscribe: false,
    commandTimeout,
  };
  const client =
    settings.mode === "cluster"
      ? new Cluster(settings.urls, {
          redisOptions: common,
          enableOfflineQueue: false,
          enableAutoPipelining: use.autoPipelining,
          // With a delay here the cluster client resends a command whose connection broke under it.
          retryDelayOnFailover: 0,
          clusterRetryStrategy: retryDelayMs,
          slotsRefreshTimeout: 3_000,
          ...(settings.natMap && { natMap: settings.natMap }),
        })
      : new Redis(settings.urls[0]!, {
          ...common,
          enableAutoPipelining: use.autoPipelining,
          // These come in batches already, and would wait for another turn of the loop.
          autoPipeliningIgnoredCommands: ["evalsha", "eval"],
          retryStrategy: retryDelayMs,
        });
  client.on("error", (error) => settings.onError?.(error));
  return client;
}

const retryDelayMs = (times: number): number => Math.min(50 * 2 ** Math.min(times, 6), 2_000);

/**
 * Errors of Redis itself that mean "not now". Any other reply error is a bug in a script and stays one. MOVED and ASK
 * reach us during a failover of a Cluster: of a pipeline whose replies differ the client follows none.
 */
const NOT_NOW =
  /^(LOADING|BUSY|CLUSTERDOWN|MASTERDOWN|READONLY|OOM|TRYAGAIN|MISCONF|NOREPLICAS|MOVED|ASK)\b/;

function unavailable(error: unknown): never {
  if (!(error instanceof Error) || error.name === "ZodError") throw error;
  if (error.name === "ReplyError" && !NOT_NOW.test(error.message)) throw error;
  throw dependencyDown(error);
}

function dependencyDown(error: unknown): TenureError<"DEPENDENCY_DOWN"> {
  const reason = reasonOf(error);
  return new TenureError("DEPENDENCY_DOWN", { dependency: "redis", reason }, { cause: error });
}

/** A Cluster's own words, "Failed to refresh slots cache", say nothing to an operator. */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if ("lastNodeError" in error)
    return `no node of the cluster answers: ${reasonOf(error.lastNodeError)}`;
  return error.message || error.name;
}
