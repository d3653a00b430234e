import * as z from "zod";
import {
  anyText,
  choice,
  emptyOr,
  filled,
  flag,
  id,
  listOf,
  MS_MAX,
  network,
  optionalWholeNumber,
  origin,
  SECONDS_MAX,
  text,
  textList,
  url,
  wholeNumber,
} from "./kinds.ts";
import { AuthToken } from "./tokens.ts";

const seconds = { min: 1, max: SECONDS_MAX };
const ms = { min: 1, max: MS_MAX };
const redisUrl = url({ schemes: ["redis:", "rediss:"] });

/**
 * Everything an operator can set, with the names of the file. The sentence beside each key describes its trade-off;
 * `docs/config.md` shows the same sentences, and a test compares the two.
 */
export const Config = z.strictObject({
  server: z.strictObject({
    host: text(
      "127.0.0.1",
      filled,
      "Address to listen on. Any address but loopback lets other machines in, and then at least one token is required.",
    ),
    port: wholeNumber(
      7070,
      { min: 0, max: 65_535 },
      "Port to listen on. 0 picks a free one, which the ready line prints.",
    ),
    data_dir: text(
      ".tenure",
      filled,
      "Directory of the embedded store and of local state, relative to the working directory. One server per directory.",
    ),
    postgres_uri: text(
      "",
      emptyOr(url({ schemes: ["postgres:", "postgresql:"] })),
      "Postgres to use; `POSTGRES_URI` sets it too. Empty = the embedded store: nothing to install, but one instance only.",
    ),
    postgres_connections_max: wholeNumber(
      21,
      { min: 5, max: 500 },
      "Connections to Postgres that this instance opens at most: one listens for changes, two (below 9: one) keep presence, the others are shared by halves between nonces and everything else. Keep the sum over all instances below Postgres' max_connections; one more per instance while it migrates.",
    ),
    secret_key_file: text(
      "",
      anyText,
      "File with the keys of secrets, one per line, 32 bytes in hex or base64: the first encrypts, all of them decrypt. Read again when it changes. All instances need the same. Empty = this instance cannot set a secret, and gives none to its nodes.",
    ),
    advertise_url: text(
      "",
      emptyOr(url({ schemes: ["http:", "https:"] })),
      "URL under which other instances reach this one. Empty = built from host and port, which is wrong behind a proxy. With `postgres_uri` it must be set when host is a wildcard (`0.0.0.0`, `::`). Beyond loopback at least one token is required.",
    ),
    allowed_origins: textList(
      origin,
      "Origins of web pages, other than this server's own, that may call it. Each one is a site that can act with a visitor's login; beyond loopback at least one token is required.",
    ),
    trusted_proxies: textList(
      network,
      "Networks (CIDR) of the proxies in front of this server. From them `X-Forwarded-For` says where a request came from; from any other address it is ignored.",
    ),
    request_timeout_seconds: wholeNumber(
      30,
      { min: 1, max: SECONDS_MAX },
      "How long a request may take to arrive, headers and body; the headers alone at most 15 s. Short frees connections of stalled senders; long lets slow lines send large bodies. Answers are not limited.",
    ),
    connections_max: wholeNumber(
      20_000,
      { min: 10, max: 1_000_000 },
      "Connections that may be open at once, HTTP and WebSocket. At this number the oldest one without a valid token is closed for the next, or the next is refused. Keep it below the process's limit of open files.",
    ),
    connections_per_address_max: wholeNumber(
      5_000,
      { min: 1, max: 1_000_000 },
      "The same for one client address; loopback is one too, an IPv6 address counts as its /64. Must have room for all nodes and clients behind one NAT. Behind `trusted_proxies` it counts requests and sockets of the forwarded address.",
    ),

    tls: z.strictObject({
      cert_file: text(
        "",
        anyText,
        "Certificate of the listener in PEM, with its chain. Set, this server speaks only TLS (1.2 or newer). It and the other files are read again within seconds of a change. Empty = plain HTTP.",
      ),
      key_file: text(
        "",
        anyText,
        "Private key of `cert_file` in PEM, without a passphrase, readable only by the user of the server.",
      ),
      client_ca_file: text(
        "",
        anyText,
        "CA of client certificates. Set, those that `client_auth` names must present one. Empty = none is requested.",
      ),
      client_auth: choice(["nodes", "all"])
        .default("nodes")
        .describe(
          "Who must present a client certificate. `nodes`: nodes and other instances; browsers, commands, probes and sessions need only a token. `all`: every connection, also that of a health check.",
        ),
      ca_file: text(
        "",
        anyText,
        "CA of the other instances, in place of those that Node trusts, for calls between instances. Empty = the CAs that Node trusts.",
      ),
      peer_cert_file: text(
        "",
        anyText,
        "Client certificate for calls to other instances. Empty = `cert_file`, which must then be allowed for clients too.",
      ),
      peer_key_file: text("", anyText, "Private key of `peer_cert_file`."),
      terminated_by_proxy: flag(
        false,
        "Set to true where a proxy or a mesh in front encrypts every connection from other machines. Its only effect: no warning at each start beyond loopback without TLS.",
      ),
    }),
  }),

  scheduler: z.strictObject({
    session_gone_after_seconds: wholeNumber(
      600,
      seconds,
      "How long a session may be away before its turn is ended for it. Short frees turns early; long lets a client come back to its turn.",
    ),
    affinity_wait_ms: wholeNumber(
      1000,
      { min: 0, max: MS_MAX },
      "How long a job of a turn waits for a slot on the turn's node. Longer keeps more turns on one node; shorter starts jobs sooner.",
    ),

    phase2: z.strictObject({
      enabled: flag(
        false,
        "Share jobs and routing between instances through Redis. Off = jobs stay within one instance and in its memory.",
      ),
      instance_id: text(
        "auto",
        id,
        "Name of this instance. `auto` makes a new one at every start; a fixed one must be unique, and reads its old inbox again after a restart.",
      ),
      presence_ttl_seconds: wholeNumber(
        15,
        seconds,
        "How long an instance counts as alive without renewing, which it does every third of this. Short takes over sooner; long rides out a pause.",
      ),
      owner_ttl_seconds: wholeNumber(
        45,
        seconds,
        "How long a node or session keeps pointing at the instance it was connected to. Short forgets a dead instance sooner; long survives slow renewals.",
      ),
      stream_group: text(
        "scheduler",
        id,
        "Consumer group of the inboxes. All instances on one Redis must use the same.",
      ),
      stream_block_ms: wholeNumber(
        1000,
        { min: 1, max: 60_000 },
        "How long one inbox read waits for a message. Longer makes fewer idle round trips; shorter stops and reconnects sooner.",
      ),
      stream_count: wholeNumber(
        64,
        { min: 1, max: 10_000 },
        "Messages taken per inbox read. More is faster under load; fewer leaves less to redo when an instance dies.",
      ),
      stream_maxlen: wholeNumber(
        10_000,
        { min: 1, max: 10_000_000 },
        "Messages an inbox may hold. At this length senders are refused with INBOX_FULL, so nothing unread is ever trimmed; more costs Redis memory.",
      ),
      dlq_enabled: flag(
        true,
        "Keep messages that were given up as dead letters, to look at and send again. Off = they are only counted.",
      ),
      dlq_maxlen: wholeNumber(
        10_000,
        { min: 1, max: 10_000_000 },
        "Dead letters kept per instance. Beyond it the oldest is dropped and counted; more costs Redis memory.",
      ),
      dlq_max_deliveries: wholeNumber(
        10,
        { min: 1, max: 1000 },
        "Deliveries before a message becomes a dead letter. More rides out longer faults; fewer shows a poisonous message sooner.",
      ),
      dlq_min_idle_ms: optionalWholeNumber(
        { min: 0, max: MS_MAX },
        "Ignored, with a warning: every retry resets a message's idle time, so this condition could never hold.",
      ),
      dlq_scan_interval_ms: wholeNumber(
        5000,
        ms,
        "How often pending messages are looked through for ones to retry or give up. Short recovers sooner; long spares Redis.",
      ),
      dlq_scan_count: wholeNumber(
        100,
        { min: 1, max: 10_000 },
        "Pending messages looked at per step of that scan. More clears a backlog sooner; fewer keeps each command short.",
      ),

      redis: z.strictObject({
        mode: choice(["single", "cluster"])
          .default("single")
          .describe(
            "`single` talks to the one server of `url`; `cluster` finds a Redis Cluster through `cluster_urls`.",
          ),
        url: text(
          "",
          emptyOr(redisUrl),
          "The Redis server of mode `single`, with user and password if it has them.",
        ),
        cluster_urls: textList(
          redisUrl,
          "Some nodes of the Redis Cluster of mode `cluster`. One would do; more keep a start possible while one is down.",
        ),
        key_prefix: text(
          "tenure",
          id,
          "First part of every key. Give each environment on a shared Redis its own, or they take each other's work.",
        ),
        ca_file: text(
          "",
          anyText,
          "CA of Redis in PEM, for `rediss://`, in place of those that Node trusts; all nodes of a Cluster included. Empty = the CAs that Node trusts.",
        ),
        cert_file: text(
          "",
          anyText,
          "Client certificate for a Redis that requires one (`tls-auth-clients`, its default). Read again at every new connection.",
        ),
        key_file: text("", anyText, "Private key of `cert_file`."),
      }),

      node_snapshot: z.strictObject({
        enabled: flag(
          true,
          "Publish this instance's nodes and read those of the others. Off = an instance gives jobs only to nodes connected to itself.",
        ),
        presence_ttl_seconds: wholeNumber(
          45,
          seconds,
          "How long a published node counts as online without a refresh. Short stops offering dead nodes sooner; long rides out a slow refresh.",
        ),
        refresh_interval_ms: wholeNumber(
          2000,
          ms,
          "How often snapshots are written and read. Short makes better choices; long spares Redis. Also the longest delay of a lost wake-up.",
        ),
        remove_stale_after_seconds: wholeNumber(
          600,
          seconds,
          "How long what Redis knows of a node that is gone is kept. Node-units stay listed as offline for `membership.forget_after_days`.",
        ),
      }),
    }),
  }),

  jobs: z.strictObject({
    retention_seconds: wholeNumber(
      3600,
      seconds,
      "How long an ended job, its result and its request id are kept. Long recognises late repeats of a request; short saves memory.",
    ),
    history_days: wholeNumber(
      7,
      { min: 1, max: 3_650 },
      "How long the rows of durable jobs that have ended are kept in the database.",
    ),
    ended_max: wholeNumber(
      2_000_000,
      { min: 1, max: 1_000_000_000 },
      "Ended jobs that are kept. At this number new jobs are refused with QUEUE_FULL until older ones are past `retention_seconds`. With tokens of several tenants, a tenant is refused while it has more than three times the number that still fits.",
    ),
    ended_bytes_max: wholeNumber(
      0,
      { min: 0, max: 1_099_511_627_776 },
      "Memory for ended jobs, in bytes; 0 is two fifths of the heap limit without Redis, and 3 GiB with it. Above it the results and timelines of the oldest are dropped; when records fill three quarters of it, new jobs are refused.",
    ),
    queue_max: wholeNumber(
      10_000,
      { min: 1, max: 1_000_000 },
      "Jobs of one tenant that may wait for a slot in one pool of one instance; a job for which a slot is free is accepted beyond it. More absorbs bursts; fewer tells clients QUEUE_FULL while waiting still makes sense.",
    ),
  }),

  job_timeout: z.strictObject({
    pending_timeout_seconds: wholeNumber(
      10,
      seconds,
      "How long a job may wait for a node before NO_AVAILABLE_NODE. Long waits for a node to come; short answers soon.",
    ),
    ack_timeout_seconds: wholeNumber(
      5,
      seconds,
      "How long a node may take to accept a job before it goes elsewhere. Short finds a stuck node sooner; long forgives a busy one.",
    ),
    run_timeout_seconds: wholeNumber(
      30,
      seconds,
      "How long an accepted job may run when it names no time itself. Short frees slots from stuck jobs; long lets slow work end.",
    ),
    attempts_max: wholeNumber(
      3,
      { min: 1, max: 100 },
      "Attempts before a job is given up. More survives more lost nodes; fewer stops a job that breaks its node.",
    ),
  }),

  model_not_available: z.strictObject({
    unavailable_ttl_seconds: wholeNumber(
      60,
      seconds,
      "How long a node is left out for a service it said it cannot serve. Long avoids repeated failures; short uses it again sooner.",
    ),
    debounce_window_seconds: wholeNumber(
      5,
      seconds,
      "At most one log line per service in this time. Long keeps a storm out of the log; short shows how it goes on.",
    ),
    node_ratelimit_window_seconds: wholeNumber(
      10,
      seconds,
      "Window in which `node_ratelimit_max` counts a node's reports.",
    ),
    node_ratelimit_max: wholeNumber(
      30,
      { min: 1, max: 1_000_000 },
      "Reports of one node per window that mark a service. More reacts to every change; fewer limits what a broken node can mark.",
    ),
  }),

  nonce: z.strictObject({
    mode: choice(["basic", "worker_queue"])
      .default("basic")
      .describe(
        "`basic` allocates on the instance that gets the call and needs no routing; `worker_queue` sends each signer to one instance that commits in groups, faster for a busy signer.",
      ),
    lease_ttl_ms: wholeNumber(
      10_000,
      // Renewed at a third of it: below a second between renewals, a slow commit would look like a dead owner.
      { min: 3000, max: MS_MAX },
      "How long an instance owns a signer without renewing. Short takes over from a dead instance sooner; long rides out a slow database.",
    ),
    hold_ttl_ms: wholeNumber(
      40_000,
      ms,
      "How long a caller may hold a nonce before it is set aside. Long gives slow broadcasts time; short finds abandoned nonces sooner.",
    ),
    hold_expiry: choice(["quarantine", "release"])
      .default("quarantine")
      .describe(
        "What becomes of a hold that ran out. `quarantine` waits for a decision, as its holder may still broadcast; `release` reuses the nonce and risks two transactions with one number.",
      ),
    queue_max: wholeNumber(
      2000,
      { min: 1, max: 1_000_000 },
      "Requests that may wait for one signer. More absorbs bursts; fewer tells callers QUEUE_FULL sooner.",
    ),
    ahead_max: wholeNumber(
      1000,
      { min: 1, max: 1_000_000 },
      "Nonces issued above the oldest gap before QUEUE_FULL. More keeps going for longer; fewer leaves less stuck behind the gap.",
    ),
    witness_file: text(
      "",
      anyText,
      "File outside `data_dir`, one per instance, that remembers how far Postgres had got. With it a restored copy of the database is noticed although this server was restarted too; each commit of nonces waits for one more sync. Empty = no file.",
    ),
  }),

  membership: z.strictObject({
    mass_loss_brake: flag(
      true,
      "Stop moving deployments when more than half of the node-units vanish at once. Off = a network fault may start everything twice.",
    ),
    forget_after_days: wholeNumber(
      30,
      { min: 0, max: 3650 },
      "Days after which a node-unit that is away is forgotten, unless it drains or a deployment names it. Short keeps lists small; long shows what was there; 0 = never.",
    ),
  }),

  limits: z.strictObject({
    payload_bytes: wholeNumber(
      262_144,
      { min: 1, max: 67_108_864 },
      "Largest payload of a job. Larger carries more per job; every waiting job keeps its payload in the hot store.",
    ),
    result_bytes: wholeNumber(
      262_144,
      { min: 1, max: 67_108_864 },
      "Largest body of a result or of one progress report. Larger carries more per job; results are kept for `retention_seconds`.",
    ),
    tenant_jobs_open_max: wholeNumber(
      100_000,
      { min: 0, max: 10_000_000 },
      "Jobs of one tenant in the hands of one instance: waiting there, or on nodes connected there. Beyond it QUEUE_FULL; 0 = no limit.",
    ),
    tenant_needs_max: wholeNumber(
      10_000,
      { min: 1, max: 10_000_000 },
      "Different needs (pool, service, turn) with which jobs of one tenant may wait at one instance. Beyond it a job with another need is refused with QUEUE_FULL.",
    ),
    tenant_payload_bytes_max: wholeNumber(
      268_435_456,
      { min: 0, max: 1_099_511_627_776 },
      "Bytes of the payloads of one tenant's jobs in the hands of one instance, waiting or running. Beyond it QUEUE_FULL; 0 = no limit.",
    ),
    tenant_submits_per_second_max: wholeNumber(
      0,
      { min: 0, max: 10_000_000 },
      "Submits of one tenant per second and instance. Beyond it RATE_LIMITED until the second is over; 0 = no limit.",
    ),
    token_calls_per_second_max: wholeNumber(
      5_000,
      { min: 0, max: 10_000_000 },
      "Calls (`request`) per second and instance of all nodes that share one token; twice as many at once after a pause. Beyond it they wait their turn and are read more slowly; 0 = no limit.",
    ),
    token_sessions_max: wholeNumber(
      20_000,
      { min: 0, max: 10_000_000 },
      "Sessions that one token may have opened at one instance, connected or away for less than `session_gone_after_seconds`. Beyond it a connect is refused with QUEUE_FULL, and tried again later by the SDK; 0 = no limit.",
    ),
    ws_frame_bytes: wholeNumber(
      1_048_576,
      { min: 1024, max: 134_217_728 },
      "Largest WebSocket frame; a larger one closes the connection. Bounds what one peer can make the server hold in memory.",
    ),
  }),

  auth: z.strictObject({
    tokens: listOf(AuthToken)
      .default([])
      .describe(
        "Who may call. Each `[[auth.tokens]]` has a name, a role, a tenant and a sha256; the variable adds `role:SECRET` pairs to those of the file. None = no auth, on loopback only.",
      ),
    peer_token: text(
      "",
      anyText,
      "Secret that instances show each other. All must have the same. Empty = they send none; then an instance that has tokens refuses to start while another one is live.",
    ),
    console_session_seconds: wholeNumber(
      43_200,
      { min: 1, max: SECONDS_MAX },
      "How long a person stays signed in at the console at most. Short ends a stolen session sooner; long asks for the token less often.",
    ),
    console_idle_seconds: wholeNumber(
      3600,
      { min: 1, max: SECONDS_MAX },
      "How long a person stays signed in at the console without a request. A page that is open counts as use.",
    ),
    offline_max_seconds: wholeNumber(
      3600,
      { min: 0, max: SECONDS_MAX },
      "How long an instance that cannot read Postgres accepts the tokens of the table and the console sessions that it knows. Longer survives a longer outage; shorter bounds how long an instance that is cut off accepts what was revoked elsewhere.",
    ),
  }),

  audit: z.strictObject({
    file: text(
      "",
      anyText,
      "File that gets a JSON line for every write, sign-in and refusal, relative to the working directory. It only grows; rotate it by moving it away. Empty = the lines go to the log, as `audit.written`.",
    ),
    retention_days: wholeNumber(
      400,
      { min: 1, max: 36_500 },
      "How long Postgres keeps who did what for `GET /audit`. Longer answers older questions; each entry takes about 400 bytes.",
    ),
    entries_max: wholeNumber(
      100_000,
      { min: 1, max: 100_000_000 },
      "Audit entries that Postgres keeps at most; the oldest go first, once an hour. The lines are kept apart from them.",
    ),
  }),
});
export type Config = Readonly<z.infer<typeof Config>>;

/** `"server.port" | "nonce.lease_ttl_ms" | …`: a rule that names a key which does not exist does not compile. */
export type ConfigPath = PathOf<Config>;
type PathOf<Section, Above extends string = ""> = {
  [Name in keyof Section & string]: Section[Name] extends Leaf
    ? `${Above}${Name}`
    : PathOf<Section[Name], `${Above}${Name}.`>;
}[keyof Section & string];
type Leaf = string | number | boolean | undefined | readonly unknown[];
