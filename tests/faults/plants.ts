import type { Edit } from "./build.ts";
import type { Pace } from "./schedule.ts";

/** A bug on purpose: one protection taken out. The suite must notice. */
export interface Plant {
  name: string;
  /** What is broken, and what that would cost a user. */
  what: string;
  edits: Edit[];
  /** In whose world it is tried: its own faults, settings and preparation apply. `main`, if not given. */
  dimension?: string;
  /** Release 0.1.0 runs beside the broken build. */
  isMixed?: boolean;
  workloads: string[];
  faults: string[];
  seed: number;
  seconds: number;
  /** Where others must be there to take over: not everybody at once. */
  pace?: Pace;
  instances: number;
  /** How long until what is broken is called broken, where it shows as work that does not go on. */
  settleMs?: number;
}

const NONCE_TABLES = "server/dist/store/migrations/0003_nonces.sql";
const NONCES = "server/dist/store/migrations/0010_signer_tenant.sql";
const CLAIMS = "server/dist/deployments/store/claim-store.js";
const NODE_UNITS = "server/dist/membership/store/node-unit-store.js";

const usual = { seed: 2, seconds: 15, instances: 2 };
const rivals = { ...usual, workloads: ["fence"], faults: ["fence.*"], instances: 1 };
const signers = { ...usual, workloads: ["nonces"] };
const units = { ...usual, workloads: ["claims"] };
const work = { ...usual, workloads: ["jobs"], instances: 2 };
const nodes = { ...usual, workloads: ["processes"], instances: 1 };
// Nobody but the readers is needed, and no instance.
const letters = { ...usual, workloads: ["inbox"], instances: 0 };

const stopping = {
  ...usual,
  dimension: "stops",
  workloads: ["stops"],
  seconds: 40,
  pace: { gapMs: [2_500, 5_000] },
} as const satisfies Partial<Plant>;

export const PLANTS: readonly Plant[] = [
  {
    name: "fence-not-compared",
    what: "a former owner's writes are taken under the new owner's term",
    ...rivals,
    edits: [
      {
        file: NONCES,
        protection:
          "if v_lease.owner_node <> p_owner_node or v_lease.fencing_token <> p_fencing_token or v_lease.expires_at <= v_now then",
        instead: "if false then",
      },
    ],
  },
  {
    name: "term-not-raised",
    what: "a takeover keeps the token, so nothing tells the former owner's writes apart",
    ...rivals,
    edits: [
      {
        file: NONCES,
        protection: "v_token := v_lease.fencing_token + 1;",
        instead: "v_token := greatest(v_lease.fencing_token, 1);",
      },
    ],
  },
  {
    name: "lease-not-locked",
    what: "two takeovers in one instant both succeed",
    ...rivals,
    edits: [
      {
        file: NONCES,
        protection: `perform set_config('lock_timeout', p_wait_ms::text, true);
    select * into v_lease from signer_lease where signer = p_signer for update;`,
        instead: `perform set_config('lock_timeout', p_wait_ms::text, true);
    select * into v_lease from signer_lease where signer = p_signer;`,
      },
    ],
  },
  {
    name: "request-not-remembered",
    what: "a repeated request gets a second number, and the first is never used",
    ...signers,
    faults: ["edge-reset"],
    edits: [
      {
        file: NONCES,
        protection: "known.request_id = v_requests[1] and known.n = 0) then",
        instead: "known.request_id = v_requests[1] and known.n = -1) then",
      },
      {
        file: NONCE_TABLES,
        protection: "primary key (signer, request_id, n)",
        instead: "check (n >= 0)",
      },
    ],
  },
  {
    name: "hold-not-compared",
    what: "whoever gave a number back can still mark it, over the head of its new holder",
    ...signers,
    faults: ["edge-reset"],
    edits: [
      {
        file: NONCES,
        protection: "and (hold_id = v_mark.hold_id or v_mark.hold_id is null)",
        instead: "",
      },
    ],
  },
  {
    name: "commits-not-durable",
    what: "numbers that were answered are lost when Postgres crashes, and handed out again",
    ...signers,
    faults: ["postgres.crash"],
    edits: [
      {
        file: "server/dist/store/postgres.js",
        protection: '"-c jit=off"',
        instead: '"-c jit=off -c synchronous_commit=off"',
      },
      {
        file: "server/dist/store/self-check.js",
        protection: 'found.synchronous_commit === "off"',
        instead: "false",
      },
    ],
  },
  {
    name: "late-close-removes-newer",
    what: "the late end of an old connection takes a connected node out of the fleet",
    ...usual,
    workloads: ["members"],
    faults: ["instance.freeze"],
    seconds: 45,
    settleMs: 30_000,
    edits: [
      {
        file: NODE_UNITS,
        protection: `where address = \${address} and epoch = \${epoch} and online\n      returning`,
        instead: `where address = \${address} and online\n      returning`,
      },
    ],
  },
  {
    name: "twin-admitted",
    what: "a second process with a node's key is let in while the first one answers",
    ...usual,
    workloads: ["members"],
    faults: ["edge-delay"],
    edits: [
      {
        file: NODE_UNITS,
        protection: "or tenure_lost_at(current) <= tenure_now()",
        instead: "or true",
      },
    ],
  },
  {
    name: "protocol-not-kept",
    what: "nodes of the release before are let in by no instance of this one",
    ...usual,
    workloads: ["members"],
    isMixed: true,
    instances: 1,
    faults: ["edge-reset"],
    settleMs: 30_000,
    edits: [
      {
        file: "protocol/dist/formats.js",
        protection: "PROTOCOL_VERSION = 1;",
        instead: "PROTOCOL_VERSION = 2;",
      },
    ],
  },
  {
    name: "claim-any-row",
    what: "a claim by an old view takes a row from its owner",
    ...units,
    faults: ["claims.kill", "edge-reset"],
    edits: [
      {
        file: CLAIMS,
        protection: `join deployment on deployment.id = wanted.id and deployment.generation = wanted.generation
       where (deployment.address = ''
              or (deployment.moving_to = \${address} and deployment.move_state = 'stopped'))`,
        instead: "join deployment on deployment.id = wanted.id where true",
      },
    ],
  },
  {
    name: "none-may-claim",
    what: "a node with the policy none takes deployments",
    ...units,
    faults: ["edge-reset"],
    edits: [
      {
        file: CLAIMS,
        protection: "me.current and not me.draining and me.claim_policy <> 'none'",
        instead: "me.current and not me.draining",
        times: 2,
      },
    ],
  },
  {
    name: "release-by-view",
    what: "whoever believes a node to be lost takes its deployments, whether it is or not",
    ...units,
    faults: ["edge-delay"],
    seconds: 25,
    edits: [
      {
        file: CLAIMS,
        protection:
          "where report.deployment_id = deployment.id and report.address = deployment.address\n                        and report.generation = deployment.generation)) * interval '1 ms' <= tenure_now()",
        instead:
          "where report.deployment_id = deployment.id and report.address = deployment.address\n                        and report.generation = deployment.generation)) * interval '1 ms' is not null",
      },
    ],
  },
  {
    name: "report-not-fenced",
    what: "a former term's report is written over the current one's",
    ...units,
    faults: ["claims.freeze:12000", "claims.hosts-partition:14000"],
    seconds: 40,
    edits: [
      {
        file: "server/dist/deployments/store/status-store.js",
        protection: `generation = \${generation}
             and (type = 'daemon' or (type = 'deployment' and \${address} in (address, moving_to)))`,
        instead: "true",
      },
    ],
  },
  {
    name: "acknowledged-before-effect",
    what: "a message leaves the inbox before it has taken effect, and dies with its reader",
    ...letters,
    faults: ["reader.*", "redis.freeze", "redis.crash"],
    edits: [
      {
        file: "server/dist/delivery/process-message.js",
        protection: "const received = await deliver(context, { inbox, entry }, message);",
        instead: `await acknowledge(context.hot, inbox, entry.id);
    const received = await deliver(context, { inbox, entry }, message);`,
      },
    ],
  },
  {
    name: "pending-not-adopted",
    what: "what a dead instance had begun to read is never read again",
    ...letters,
    faults: ["reader.kill"],
    edits: [
      {
        file: "server/dist/delivery/adoption.js",
        protection: "await scan.pending(inbox, goOn);",
        instead: "",
      },
    ],
  },
  {
    name: "inbox-trimmed",
    what: "a full inbox drops its oldest messages instead of refusing new ones",
    ...letters,
    faults: ["reader.kill", "reader.freeze"],
    edits: [
      {
        file: "server/dist/delivery/lua/send-message.lua",
        protection: "if length >= args.length_max then",
        instead: "if false then",
      },
      {
        file: "server/dist/delivery/lua/send-message.lua",
        protection: "redis.call('XADD', inbox, '*',",
        instead: "redis.call('XADD', inbox, 'MAXLEN', args.length_max, '*',",
      },
    ],
  },
  {
    name: "letters-dropped",
    what: "a message that is given up is nowhere, not even among the dead letters",
    ...letters,
    faults: ["reader.freeze"],
    edits: [
      {
        file: "server/dist/delivery/lua/bury-message.lua",
        protection: "if args.keep then",
        instead: "if false then",
      },
    ],
  },
  {
    name: "binding-not-decisive",
    what: "the same request at two instances in one instant becomes two jobs",
    ...work,
    faults: ["edge-reset"],
    edits: [
      {
        file: "server/dist/jobs/store/lua/bind-request.lua",
        protection: "if held_job ~= former then return { 'taken', held_job } end",
        instead: "",
      },
    ],
  },
  {
    name: "attempt-not-compared",
    what: "a node that was given up ends a job that runs elsewhere by now",
    ...work,
    // Longer than two missed pings: its jobs run elsewhere when it wakes and says how they ended.
    faults: ["worker.freeze:13000"],
    pace: { gapMs: [5_000, 7_000] },
    seconds: 40,
    edits: [
      {
        file: "server/dist/jobs/store/lua/advance-job.lua",
        protection: "if attempt_id ~= job.attempt then",
        instead: "if false then",
      },
      {
        file: "server/dist/jobs/store/lua/advance-job.lua",
        protection:
          "if elsewhere and event ~= 'give_up' and event ~= 'released' then return 'other_node' end",
        instead: "",
      },
    ],
  },
  {
    name: "slots-not-bounded",
    what: "two instances give a node more jobs than it can run",
    ...work,
    faults: ["worker.kill"],
    edits: [
      {
        file: "server/dist/jobs/store/lua/reserve-slots.lua",
        protection: "if not marked and used + gathered < room then",
        instead: "if not marked then",
      },
    ],
  },
  {
    name: "due-index-not-read",
    what: "what an instance had in hand when it was killed is never finished",
    ...work,
    faults: ["instance.kill"],
    settleMs: 45_000,
    edits: [
      {
        file: "server/dist/jobs/store/lua/take-due.lua",
        protection: "'LIMIT', 0, args.count)",
        instead: "'LIMIT', 0, 0)",
      },
    ],
  },
  {
    name: "children-outlive-agent",
    what: "a killed node-unit leaves its deployments running beside their successors",
    ...nodes,
    faults: ["unit.kill:25000"],
    pace: { gapMs: [9_000, 12_000] },
    seconds: 50,
    edits: [
      {
        file: "agent/dist/executor/orphans/guard.js",
        protection: 'for group in $groups; do kill -s KILL -- "-$group"; done',
        instead: "exit 0",
      },
    ],
  },
  {
    name: "no-self-stop",
    what: "a node-unit out of contact runs on while others have taken its deployments over",
    ...nodes,
    faults: ["unit.hosts-partition:45000"],
    pace: { gapMs: [9_000, 12_000] },
    seconds: 60,
    edits: [
      {
        file: "agent/dist/contact-watchdog.js",
        protection: `suspend(\`no contact for \${selfStopMs} ms\`, silentMs);`,
        instead: "",
      },
    ],
  },
  {
    name: "milliseconds-as-int",
    what: "25 days after a node-unit left, no instance can read the members, and nothing is taken over",
    ...usual,
    dimension: "time",
    workloads: ["calendar"],
    faults: ["days.month"],
    seconds: 20,
    edits: [
      {
        file: "server/dist/store/migrations/0006_node_units.sql",
        protection: `(extract(epoch from least(greatest(moment, tenure_now() - interval '1 day'), tenure_now() + interval '1 day')
                      - tenure_now()) * 1000)::bigint`,
        instead: "(extract(epoch from moment - tenure_now()) * 1000)::int",
      },
    ],
  },
  {
    name: "daemon-statuses-swept",
    what: "after a quiet week a daemon that runs counts as running nowhere",
    ...usual,
    dimension: "time",
    workloads: ["calendar"],
    faults: ["days.month"],
    seconds: 20,
    edits: [
      {
        file: "server/dist/deployments/store/status-store.js",
        protection: ">= tenure_now() - interval '7 days')",
        instead: "= 'infinity')",
      },
    ],
  },
  {
    name: "rows-read-strictly",
    what: "one row that the API would refuse makes the list of deployments unreadable to everything",
    ...usual,
    dimension: "rows",
    workloads: ["rows"],
    faults: ["rows.running"],
    edits: [
      {
        file: "server/dist/deployments/store/row-reader.js",
        protection: "const { issues } = parsed.error;",
        instead: "throw parsed.error;",
      },
    ],
  },
  {
    name: "times-not-bounded",
    what: "one event with an infinite time makes all events unreadable",
    ...usual,
    dimension: "rows",
    workloads: ["rows"],
    faults: ["rows.others"],
    edits: [
      {
        file: "server/dist/store/postgres.js",
        protection: "if (oid === TIMESTAMPTZ_OID &&",
        instead: "if (false &&",
      },
    ],
  },
  {
    name: "watch-armed-after-stop",
    what: "a node-unit does not end after SIGTERM until its hard limit, and then with 1",
    ...stopping,
    faults: ["slow-unit.stop"],
    edits: [
      {
        file: "agent/dist/contact-watchdog.js",
        protection: `if (stopped)
                return;
            lastContactMs = atMs;`,
        instead: "lastContactMs = atMs;",
      },
    ],
  },
  {
    name: "worker-not-drained",
    what: "a worker that is stopped fails the jobs it runs",
    ...stopping,
    seconds: 20,
    faults: ["stop-worker.stop"],
    edits: [
      {
        file: "sdk/dist/worker/worker.js",
        protection: "const drained = this.#attempts.drain();",
        instead: "const drained = this.#attempts.drain(); this.#attempts.giveBack();",
      },
      {
        file: "sdk/dist/worker/job-failure.js",
        protection: `code: "NODE_DRAINING",
    message: "the worker is leaving",
    retryable: true,`,
        instead: 'code: "STOPPED", message: "the worker is leaving", retryable: false,',
      },
    ],
  },
  {
    name: "stopped-not-given-back",
    what: "the deployments of a node-unit that stops are down until its slowest child has ended",
    ...stopping,
    faults: ["slow-unit.stop"],
    edits: [
      {
        file: "agent/dist/reconciler.js",
        protection: "releases.add({ id, generation });",
        instead: "{}",
      },
    ],
  },
  {
    name: "dead-rows-read",
    what: "every look at the members reads the rows of all node-units there ever were",
    ...usual,
    dimension: "many",
    workloads: ["many"],
    faults: ["dead.nodes"],
    pace: { gapMs: [8_000, 10_000] },
    seconds: 40,
    edits: [
      {
        file: "server/dist/membership/store/online-unit-store.js",
        protection: "where online and epoch",
        instead: "where epoch",
      },
    ],
  },
  {
    name: "history-not-compared",
    what: "numbers that were handed out are handed out again by a Postgres that lost them",
    ...usual,
    dimension: "poolers",
    workloads: ["pooled"],
    faults: ["store.restore"],
    edits: [
      {
        file: "server/dist/store/migrations/0010_signer_tenant.sql",
        protection: "if v_is_known is not true and (",
        instead: "if false and (",
      },
    ],
  },
  {
    name: "node-stays-with-cut-off-instance",
    what: "node-units stay with an instance that has lost its stores, although another one is ready",
    ...usual,
    dimension: "cuts",
    workloads: ["cut"],
    faults: ["cuts.stores"],
    seconds: 20,
    edits: [
      {
        file: "sdk/dist/connection/mover.js",
        protection: "options.move(url);",
        instead: "return;",
      },
    ],
  },
];
