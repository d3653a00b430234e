import { BlockList, isIP } from "node:net";
import { relative, resolve } from "node:path";
import type { Setting } from "./layers.ts";
import type { Config, ConfigPath } from "./schema.ts";
import { roleProblems, tokenSha256 } from "./tokens.ts";

/** What must hold between settings that are each fine alone. */
interface Relation {
  keys: readonly ConfigPath[];
  holds: (config: Config) => boolean;
  sentence: string;
}

export interface Judged {
  config: Config;
  settings: ReadonlyMap<string, Setting>;
  /** Settings that already have a problem of their own. `config` has their defaults. */
  broken: ReadonlySet<string>;
}

/**
 * The sentences of all relations that do not hold. A relation that reads a broken setting is left alone: it would
 * compare with a default and suggest the wrong fix.
 */
export function relationProblems({ config, settings, broken }: Judged): string[] {
  const sound = (keys: readonly string[]): boolean => !keys.some((key) => broken.has(key));
  const pairs = RELATIONS.filter(({ keys, holds }) => sound(keys) && !holds(config)).map(
    ({ keys, sentence }) => `${sentence} (${keys.map(found({ config, settings })).join(", ")})`,
  );
  const tokens = sound(["auth.tokens", "auth.peer_token"])
    ? tokenProblems(config, settings.get("auth.tokens")?.entryOrigins ?? [])
    : [];
  return [...pairs, ...tokens];
}

/** What is worth a line at start-up but stops nothing. */
export function configWarnings(config: Config): string[] {
  const { phase2 } = config.scheduler;
  const warnings: string[] = [];
  if (phase2.dlq_min_idle_ms !== undefined)
    warnings.push(
      "scheduler.phase2.dlq_min_idle_ms is ignored: every retry resets a message's idle time; dlq_max_deliveries and the message's deadline decide",
    );
  if (phase2.enabled && config.server.postgres_uri === "")
    warnings.push(
      "scheduler.phase2 is enabled on the embedded store: instances that share this Redis must share one Postgres, so run no second one",
    );
  const { host, tls } = config.server;
  if (!isLoopback(host) && tls.cert_file === "" && !tls.terminated_by_proxy)
    warnings.push(
      "server.host lets other machines in and server.tls.cert_file is not set: tokens, payloads and environments travel unencrypted; set it, or put a proxy that terminates TLS in front and set server.tls.terminated_by_proxy",
    );
  return warnings;
}

const LOOPBACK = new BlockList();
LOOPBACK.addSubnet("127.0.0.0", 8, "ipv4");
LOOPBACK.addAddress("::1", "ipv6");

/** Whether only this machine can reach `host`. In doubt not: a name but `localhost` may resolve to anything. */
export function isLoopback(host: string): boolean {
  const bare = host.replace(/^\[(.*)\]$/, "$1").toLowerCase();
  const family = isIP(bare);
  if (family === 0) return bare === "localhost";
  return LOOPBACK.check(bare, family === 6 ? "ipv6" : "ipv4");
}

/** Whether `host` means every address of the machine: `0.0.0.0`, `::` and their other spellings. */
export function isWildcard(host: string): boolean {
  return /^(::ffff:)?[0.:]+$/i.test(host.replace(/^\[(.*)\]$/, "$1"));
}

const RELATIONS: readonly Relation[] = [
  {
    keys: ["server.tls.cert_file", "server.tls.key_file"],
    holds: ({ server: { tls } }) => (tls.cert_file === "") === (tls.key_file === ""),
    sentence:
      "server.tls.cert_file and server.tls.key_file must be set together: a certificate is of no use without its key",
  },
  {
    keys: ["server.tls.client_ca_file", "server.tls.cert_file"],
    holds: ({ server: { tls } }) => tls.client_ca_file === "" || tls.cert_file !== "",
    sentence:
      "server.tls.cert_file must be set when server.tls.client_ca_file is: without TLS no client can present a certificate",
  },
  {
    keys: ["server.tls.client_auth", "server.tls.client_ca_file"],
    holds: ({ server: { tls } }) => tls.client_auth === "nodes" || tls.client_ca_file !== "",
    sentence:
      'server.tls.client_ca_file must be set when server.tls.client_auth is "all": without a CA no certificate can be checked',
  },
  {
    keys: ["server.tls.peer_cert_file", "server.tls.peer_key_file"],
    holds: ({ server: { tls } }) => (tls.peer_cert_file === "") === (tls.peer_key_file === ""),
    sentence:
      "server.tls.peer_cert_file and server.tls.peer_key_file must be set together: a certificate is of no use without its key",
  },
  {
    keys: ["server.advertise_url", "server.tls.cert_file"],
    holds: ({ server: { advertise_url, tls } }) =>
      tls.cert_file === "" || advertise_url === "" || advertise_url.startsWith("https:"),
    sentence:
      "server.advertise_url must start with https:// when server.tls.cert_file is set: this server then answers no plain HTTP",
  },
  {
    keys: ["scheduler.phase2.redis.cert_file", "scheduler.phase2.redis.key_file"],
    holds: ({ scheduler: { phase2 } }) =>
      (phase2.redis.cert_file === "") === (phase2.redis.key_file === ""),
    sentence:
      "scheduler.phase2.redis.cert_file and scheduler.phase2.redis.key_file must be set together: a certificate is of no use without its key",
  },
  {
    keys: [
      "scheduler.phase2.redis.ca_file",
      "scheduler.phase2.redis.cert_file",
      "scheduler.phase2.redis.url",
      "scheduler.phase2.redis.cluster_urls",
    ],
    holds: ({ scheduler: { phase2 } }) =>
      (phase2.redis.ca_file === "" && phase2.redis.cert_file === "") ||
      redisUrls(phase2.redis).every((url) => url.startsWith("rediss:")),
    sentence:
      "the URLs of Redis must start with rediss:// when scheduler.phase2.redis.ca_file or cert_file is set: with redis:// nothing is encrypted",
  },
  {
    keys: ["server.host", "auth.tokens"],
    holds: ({ server, auth }) => isLoopback(server.host) || auth.tokens.length > 0,
    sentence:
      "non-loopback bind without auth: server.host lets other machines in, so auth.tokens (or TENURE_TOKENS) must have at least one token",
  },
  {
    keys: ["server.advertise_url", "auth.tokens"],
    holds: ({ server, auth }) =>
      auth.tokens.length > 0 || server.advertise_url === "" || isLoopbackUrl(server.advertise_url),
    sentence:
      "public name without auth: server.advertise_url names this server to other machines, whose requests a proxy would pass on to the local operator, so auth.tokens (or TENURE_TOKENS) must have at least one token",
  },
  {
    keys: ["server.allowed_origins", "auth.tokens"],
    holds: ({ server, auth }) =>
      auth.tokens.length > 0 || server.allowed_origins.every(isLoopbackUrl),
    sentence:
      "foreign origin without auth: every page of server.allowed_origins could act as the local operator, so auth.tokens (or TENURE_TOKENS) must have at least one token",
  },
  {
    // The embedded store has one instance, so no other one calls it at the URL it advertises.
    keys: ["server.host", "server.advertise_url", "server.postgres_uri"],
    holds: ({ server }) => server.postgres_uri === "" || !isWildcard(advertisedHost(server)),
    sentence:
      "server.advertise_url must be set to a URL that other instances can call: server.host is a wildcard address, which names no machine",
  },
  {
    keys: ["scheduler.phase2.enabled", "scheduler.phase2.redis.mode", "scheduler.phase2.redis.url"],
    holds: ({ scheduler: { phase2 } }) =>
      !phase2.enabled || phase2.redis.mode !== "single" || phase2.redis.url !== "",
    sentence:
      'scheduler.phase2.redis.url must be set when scheduler.phase2.enabled is true and redis.mode is "single": instances meet in Redis',
  },
  {
    keys: [
      "scheduler.phase2.enabled",
      "scheduler.phase2.redis.mode",
      "scheduler.phase2.redis.cluster_urls",
    ],
    holds: ({ scheduler: { phase2 } }) =>
      !phase2.enabled || phase2.redis.mode !== "cluster" || phase2.redis.cluster_urls.length > 0,
    sentence:
      'scheduler.phase2.redis.cluster_urls must be set when scheduler.phase2.enabled is true and redis.mode is "cluster": instances meet in Redis',
  },
  {
    // Owners are renewed together with presence, every third of its TTL.
    keys: ["scheduler.phase2.owner_ttl_seconds", "scheduler.phase2.presence_ttl_seconds"],
    holds: ({ scheduler: { phase2 } }) => phase2.owner_ttl_seconds >= phase2.presence_ttl_seconds,
    sentence:
      "scheduler.phase2.owner_ttl_seconds must be at least scheduler.phase2.presence_ttl_seconds, which is 3 renewals, so that one lost renewal is never a lost owner",
  },
  {
    keys: ["scheduler.phase2.stream_count", "scheduler.phase2.stream_maxlen"],
    holds: ({ scheduler: { phase2 } }) => phase2.stream_count <= phase2.stream_maxlen,
    sentence:
      "scheduler.phase2.stream_count must be at most scheduler.phase2.stream_maxlen: a read cannot take more than an inbox holds",
  },
  {
    keys: [
      "scheduler.phase2.node_snapshot.presence_ttl_seconds",
      "scheduler.phase2.node_snapshot.refresh_interval_ms",
    ],
    holds: ({ scheduler: { phase2 } }) =>
      phase2.node_snapshot.presence_ttl_seconds * 1000 >
      3 * phase2.node_snapshot.refresh_interval_ms,
    sentence:
      "scheduler.phase2.node_snapshot.presence_ttl_seconds must be more than 3 × scheduler.phase2.node_snapshot.refresh_interval_ms, so that one late refresh does not take a node offline",
  },
  {
    keys: [
      "scheduler.phase2.node_snapshot.remove_stale_after_seconds",
      "scheduler.phase2.node_snapshot.presence_ttl_seconds",
    ],
    holds: ({ scheduler: { phase2 } }) =>
      phase2.node_snapshot.remove_stale_after_seconds > phase2.node_snapshot.presence_ttl_seconds,
    sentence:
      "scheduler.phase2.node_snapshot.remove_stale_after_seconds must be more than scheduler.phase2.node_snapshot.presence_ttl_seconds: a node must be offline before it is removed",
  },
  {
    keys: ["scheduler.affinity_wait_ms", "job_timeout.pending_timeout_seconds"],
    holds: ({ scheduler, job_timeout }) =>
      scheduler.affinity_wait_ms < job_timeout.pending_timeout_seconds * 1000,
    sentence:
      "scheduler.affinity_wait_ms must be less than job_timeout.pending_timeout_seconds, or a job gives up before it may try another node",
  },
  {
    keys: ["nonce.hold_ttl_ms", "nonce.lease_ttl_ms"],
    holds: ({ nonce }) => nonce.hold_ttl_ms >= nonce.lease_ttl_ms,
    sentence:
      "nonce.hold_ttl_ms must be at least nonce.lease_ttl_ms: a takeover must not find the holds of a live caller already run out",
  },
  {
    keys: ["nonce.witness_file", "server.data_dir"],
    holds: ({ nonce, server }) =>
      nonce.witness_file === "" ||
      relative(resolve(server.data_dir), resolve(nonce.witness_file)).startsWith(".."),
    sentence:
      "nonce.witness_file must be outside server.data_dir: a restored copy of the directory would bring it back too",
  },
  {
    keys: ["limits.payload_bytes", "limits.ws_frame_bytes"],
    holds: ({ limits }) => limits.payload_bytes < limits.ws_frame_bytes,
    sentence:
      "limits.payload_bytes must be less than limits.ws_frame_bytes: a payload travels inside a frame",
  },
  {
    keys: ["limits.result_bytes", "limits.ws_frame_bytes"],
    holds: ({ limits }) => limits.result_bytes < limits.ws_frame_bytes,
    sentence:
      "limits.result_bytes must be less than limits.ws_frame_bytes: a result travels inside a frame",
  },
];

/** The URLs of the chosen mode. */
const redisUrls = ({
  mode,
  url,
  cluster_urls,
}: Config["scheduler"]["phase2"]["redis"]): string[] =>
  mode === "cluster" ? [...cluster_urls] : url === "" ? [] : [url];

const isLoopbackUrl = (url: string): boolean => isLoopback(new URL(url).hostname);

const advertisedHost = ({ host, advertise_url }: Config["server"]): string =>
  advertise_url === "" ? host : new URL(advertise_url).hostname;

/** `nonce.hold_ttl_ms = 5000 from tenure.toml`. Texts are not shown: a URL may hold a password. */
function found({ config, settings }: Pick<Judged, "config" | "settings">) {
  return (key: ConfigPath): string => {
    const value = valueAt(config, key);
    const shown = typeof value === "number" || typeof value === "boolean" ? ` = ${value}` : "";
    const origin = settings.get(key)?.origin;
    return `${key}${shown} ${origin === undefined ? "by default" : `from ${origin}`}`;
  };
}

function valueAt(config: Config, key: ConfigPath): unknown {
  return key
    .split(".")
    .reduce((part: unknown, name) => (part as Record<string, unknown>)[name], config);
}

function tokenProblems({ auth }: Config, origins: readonly string[]): string[] {
  const secrets = auth.tokens.map((token) => token.sha256);
  const peerSha256 = auth.peer_token === "" ? undefined : tokenSha256(auth.peer_token);
  return auth.tokens.flatMap((token, index) => {
    const origin = origins[index] ?? "auth.tokens";
    const problems: string[] = [];
    const first = secrets.indexOf(token.sha256);
    if (first < index)
      problems.push(
        `${origin}: has the same secret as ${origins[first]}, so nobody could tell which of the two is calling`,
      );
    if (token.sha256 === peerSha256 && token.role !== "peer")
      problems.push(
        `${origin}: has the same secret as auth.peer_token, so its holder could call as an instance`,
      );
    problems.push(...roleProblems(token).map((problem) => `${origin}: ${problem}`));
    return problems;
  });
}
