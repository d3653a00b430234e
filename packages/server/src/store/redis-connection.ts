import type { ConnectionOptions } from "node:tls";
import { Cluster, Redis, type RedisOptions } from "ioredis";
import type { PemFiles } from "../kernel/pem-files.ts";

export interface RedisSettings {
  mode: "single" | "cluster";
  urls: string[];
  prefix: string;
  /** Certificates for `rediss://` URLs, read again at each new connection. */
  tls?: Pick<PemFiles, "newest"> | undefined;
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

export interface ConnectionUse {
  autoPipelining: boolean;
  blockMsMax?: number;
}

const SILENCE_MARGIN_MS = 1_000;
const KEEPALIVE_MS = 10_000;
// The longest `stream_block_ms` an operator can set.
export const BLOCK_MS_MAX = 60_000;

/** A connection to one Redis, or to all nodes of a Cluster. */
export function connect(settings: RedisSettings, use: ConnectionUse): Redis | Cluster {
  const commandTimeout = (settings.commandTimeoutMs ?? 2_000) + (use.blockMsMax ?? 0);
  const common = {
    connectTimeout: 5_000,
    // ioredis would send unanswered commands again after a reconnect: one lost reply made two stream entries.
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 1,
    enableOfflineQueue: false,
    autoResubscribe: false,
    commandTimeout,
    // A connection that was cut off without a reset is given up: TCP alone would try for minutes.
    socketTimeout: commandTimeout + SILENCE_MARGIN_MS,
    keepAlive: KEEPALIVE_MS,
  };
  const client =
    settings.mode === "cluster"
      ? new Cluster(settings.urls, {
          redisOptions: { ...common, ...accessOf(settings.urls[0]!, settings.tls) },
          ...(isTls(settings.urls[0]!) && { dnsLookup: keepName }),
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
          ...(isTls(settings.urls[0]!) && { tls: certificatesOf(settings.tls) }),
          enableAutoPipelining: use.autoPipelining,
          // These come in batches already, and would wait for another turn of the loop.
          autoPipeliningIgnoredCommands: ["evalsha", "eval"],
          retryStrategy: retryDelayMs,
        });
  client.on("error", (error) => settings.onError?.(error));
  if (client instanceof Cluster) client.on("+node", takeLateErrors);
  else takeLateErrors(client);
  return client;
}

/**
 * The library handles the first error of a socket. A server that refuses a client certificate may send two alerts, and the
 * second would end the process.
 */
function takeLateErrors(redis: Redis): void {
  redis.on("connect", () => void redis.stream.on("error", () => {}));
}

const retryDelayMs = (times: number): number => Math.min(50 * 2 ** Math.min(times, 6), 2_000);

const isTls = (url: string): boolean => new URL(url).protocol === "rediss:";

/**
 * How the first URL of a Cluster gets in. Nodes that the Cluster announces come as host and port alone, so without this
 * they would be asked without a password, or in plain text.
 */
function accessOf(
  url: string,
  tls: RedisSettings["tls"],
): Pick<RedisOptions, "username" | "password" | "tls"> {
  const { username, password } = new URL(url);
  return {
    ...(username && { username: decodeURIComponent(username) }),
    ...(password && { password: decodeURIComponent(password) }),
    ...(isTls(url) && { tls: certificatesOf(tls) }),
  };
}

/** Getters, because the client copies the members at each connection: one that is renewed is used from then on. */
function certificatesOf(tls: RedisSettings["tls"]): ConnectionOptions {
  if (!tls) return {};
  return {
    get ca() {
      return tls.newest().ca;
    },
    get cert() {
      return tls.newest().cert;
    },
    get key() {
      return tls.newest().key;
    },
  };
}

/** A certificate names a host. With the library's own lookup it would be compared with an address. */
function keepName(name: string, found: (error: undefined, address: string) => void): void {
  found(undefined, name);
}
