import { TenureError } from "@tenure/protocol";
import { Cluster, type Redis } from "ioredis";
import { reasonOfConnectionError } from "../kernel/connection-error.ts";
import { type Call, StartedCall, type When } from "./call.ts";
import type { HotStore } from "./hot-store.ts";
import { BLOCK_MS_MAX, connect, type RedisSettings } from "./redis-connection.ts";
import { createSubscriber } from "./redis-subscriber.ts";
import type { Script } from "./script.ts";
import { type Evaluation, type ScriptCall, ScriptRunner } from "./script-batch.ts";

export type { RedisSettings };

export interface RedisStore extends HotStore {
  /** For commands that are not scripts: INFO in the self-check, reading dead letters as bytes. */
  readonly client: Redis | Cluster;
  /**
   * Opens a separate connection for a blocking command: on a shared one every other command waits behind it (2.9 s
   * measured against 1.1 ms). `blockMsMax` is the longest time its commands block; the command timeout is added to it.
   */
  blockingConnection(blockMsMax?: number): Redis | Cluster;
}

/**
 * One Redis or a Redis Cluster.
 *
 * The client never sends a command twice. When a reply is lost the outcome is unknown: the caller gets `DEPENDENCY_DOWN` and
 * may call again, because every script is idempotent. Without a connection a command fails at once instead of waiting in a
 * queue.
 */
export function openRedis(settings: RedisSettings): RedisStore {
  const client = connect(settings, { autoPipelining: true });
  const runner = new ScriptRunner((evaluation) => evaluate(client, evaluation), {
    joins: settings.mode === "single",
  });
  const opened = new Set([client]);
  const subscriber = createSubscriber(settings, publish);
  client.on("ready", () => subscriber.probeNow());

  async function publish(channel: string, message: string): Promise<void> {
    await client.publish(channel, message).catch(unavailable);
  }

  function start<Key extends string, Args, Reply>(
    script: Script<Key, Args, Reply>,
    keys: Record<Key, string>,
    args: Args,
    when?: When,
  ): Call<Reply> {
    const handle = new StartedCall<Reply>();
    const fail = (error: unknown) => {
      settings.onOp?.(script.name, "error");
      handle.fail(reasonFor(error));
    };
    try {
      runner.start({
        call: callOf(script, keys, args, { when, nowMs: settings.nowMs?.() }),
        handle,
        answer(raw) {
          try {
            const reply = script.reply.parse(raw);
            settings.onOp?.(script.name, "ok");
            handle.answer(raw, reply);
          } catch (error) {
            fail(error);
          }
        },
        skip: () => handle.skip(),
        fail,
      });
    } catch (error) {
      fail(error);
    }
    return handle;
  }

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
    run: (script, keys, args) => start(script, keys, args).reply,
    start: (script, keys, args) => start(script, keys, args),
    startIf: (when, script, keys, args) => start(script, keys, args, when),
    awaitedBy: (call) => runner.awaitedBy(call),
    publish,
    subscribe: (channel, listener) => subscriber.subscribe(channel, listener).catch(unavailable),
    onBack(listener) {
      client.on("ready", listener);
    },
    async ping() {
      // A write: a Redis that is full, or cannot save, still answers reads.
      await (client instanceof Cluster
        ? pingCluster(client)
        : client.set(`${settings.prefix}:ping`, "1", "PX", PING_KEPT_MS)
      ).catch(unavailable);
    },
    async close() {
      await subscriber.close();
      for (const connection of opened) connection.disconnect();
    },
  };
}

/**
 * Resolves when the store takes commands; a wrong URL or a server that is down is one clear sentence. The client of a
 * Cluster is ready with the first node and refuses commands for a node it is only connecting to, so all of them are asked.
 */
export async function waitUntilReady(store: RedisStore, limitMs: number): Promise<void> {
  await firstConnection(store, limitMs);
  const { client } = store;
  if (client instanceof Cluster)
    await Promise.all(client.nodes("master").map((node) => node.ping())).catch(unavailable);
}

async function firstConnection({ client }: RedisStore, limitMs: number): Promise<void> {
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
  { when, nowMs }: { when: When | undefined; nowMs: number | undefined },
): ScriptCall {
  // Parsed on the way out too: JSON would quietly turn a NaN into null.
  const parsed = (script.wire?.(args) ?? script.args.parse(args)) as Record<string, unknown>;
  const argv = [NO_ARGUMENTS];
  const texts: readonly string[] = script.texts;
  for (const name of texts) argv.push(parsed[name] as string);
  if (nowMs !== undefined || Object.keys(parsed).length > texts.length) {
    const named: Record<string, unknown> = { now_ms: nowMs };
    for (const name in parsed) if (!texts.includes(name)) named[name] = parsed[name];
    argv[0] = JSON.stringify(named);
  }
  return { script, keys: script.keys.map((key) => keys[key]), argv, when };
}

/** For calls with texts only, as on the path of every job. */
const NO_ARGUMENTS = "{}";

async function evaluate(
  client: Redis | Cluster,
  { lua, sha, keys, argv }: Evaluation,
): Promise<unknown> {
  try {
    return await client.evalsha(sha, keys.length, ...keys, ...argv);
  } catch (error) {
    if (!String(error).includes("NOSCRIPT")) throw error;
    // First use on this server: EVAL also caches the script.
    return await client.eval(lua, keys.length, ...keys, ...argv);
  }
}

/** Checks every master, and that all slots are served: a PING reaches one node, and succeeds while others are down. */
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

/** Uses the reported memory instead of a write, because it is not known here which master has which key. */
function isFull(memory: string): boolean {
  const figure = (name: string) =>
    Number(new RegExp(`^${name}:(\\d+)`, "m").exec(memory)?.[1] ?? 0);
  return figure("maxmemory") > 0 && figure("used_memory") >= figure("maxmemory");
}

/**
 * Errors of Redis itself that mean "not now". Any other reply error is a bug in a script and stays one. MOVED and ASK
 * reach us during a failover of a Cluster: of a pipeline whose replies differ the client follows none. NOAUTH, WRONGPASS and
 * NOPERM are settings that an operator can change while we run.
 */
const NOT_NOW =
  /^(LOADING|BUSY|CLUSTERDOWN|MASTERDOWN|READONLY|OOM|TRYAGAIN|MISCONF|NOREPLICAS|MOVED|ASK|NOAUTH|WRONGPASS|NOPERM)\b/;

function unavailable(error: unknown): never {
  throw reasonFor(error);
}

function reasonFor(error: unknown): unknown {
  if (!(error instanceof Error) || error.name === "ZodError") return error;
  if (error.name === "ReplyError" && !NOT_NOW.test(error.message)) return error;
  return dependencyDown(error);
}

function dependencyDown(error: unknown): TenureError<"DEPENDENCY_DOWN"> {
  const reason = reasonOf(error);
  return new TenureError("DEPENDENCY_DOWN", { dependency: "redis", reason }, { cause: error });
}

/** The message of a Cluster, "Failed to refresh slots cache", does not help an operator. */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if ("lastNodeError" in error)
    return `no node of the cluster answers: ${reasonOf(error.lastNodeError)}`;
  return reasonOfConnectionError(error);
}
