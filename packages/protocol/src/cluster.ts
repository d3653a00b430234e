import * as z from "zod";
import {
  AttemptId,
  BootId,
  Count,
  DurationMs,
  InstanceId,
  JobId,
  Role,
  Tenant,
  Timestamp,
} from "./formats.ts";
import { JobOutcome } from "./job.ts";
import { ANY_TENANT } from "./tenants.ts";

/** One server process. */
export const Instance = z.object({
  instance_id: InstanceId,
  boot_id: BootId,
  url: z.string(),
  version: z.string(),
  live: z.boolean(),
  expires_at: Timestamp,
  /** Messages waiting for it, and dead ones; null without Redis. */
  inbox_pending: Count.nullable(),
  dlq_length: Count.nullable(),
});
export type Instance = z.infer<typeof Instance>;

export const DependencyHealth = z.object({
  name: z.string(),
  kind: z.string(),
  ok: z.boolean(),
  reason: z.string().optional(),
});
export type DependencyHealth = z.infer<typeof DependencyHealth>;

export const TIMELINE_STATES = ["confirmed", "unconfirmed", "unknown"] as const;

/** Whether Postgres has the history from which nonces were allocated. `unknown`: it could not be checked. */
export const TimelineStatus = z.object({
  state: z.enum(TIMELINE_STATES),
  reason: z.string().optional(),
});
export type TimelineStatus = z.infer<typeof TimelineStatus>;

export const ClusterView = z.object({
  server_id: InstanceId,
  /** The instance that answered. */
  instance_id: InstanceId,
  version: z.string(),
  phase2: z.boolean(),
  instances: z.array(Instance),
  dependencies: z.array(DependencyHealth),
  /** True only when it was checked. `timeline` has the details; a server of 0.1.0 does not send it. */
  timeline_confirmed: z.boolean(),
  timeline: TimelineStatus.optional(),
});
export type ClusterView = z.infer<typeof ClusterView>;

export const HealthLive = z.object({ status: z.literal("ok") });
export type HealthLive = z.infer<typeof HealthLive>;

export const HealthReady = z.object({
  status: z.enum(["ready", "starting", "stopping", "not_ready"]),
  instance_id: InstanceId,
  dependencies: z.array(DependencyHealth),
  /** Does not affect `status`: while the timeline is unconfirmed, everything but nonces works. */
  nonces: z.object({ timeline: TimelineStatus }).optional(),
});
export type HealthReady = z.infer<typeof HealthReady>;

/** `<instance_id>:<stream id>`, separated by the last colon. */
export const DlqId = z
  .string()
  .regex(/^[A-Za-z0-9._:@-]{1,128}:\d{1,20}-\d{1,20}$/, "must be <instance_id>:<stream id>");
export type DlqId = z.infer<typeof DlqId>;

/** A message that could not be processed. */
export const DlqEntry = z.object({
  id: DlqId,
  instance_id: InstanceId,
  reason: z.string(),
  deliveries: Count,
  age_ms: z.int().min(0),
  moved_at: Timestamp,
  /** Absent when the message could not be parsed. */
  kind: z.string().optional(),
  job_id: JobId.optional(),
  attempt_id: AttemptId.optional(),
  /** The original message in base64, because it may not be text. */
  bytes: z.base64(),
});
export type DlqEntry = z.infer<typeof DlqEntry>;

/** A row of `event`, named `noun.past-participle`. */
export const EventRecord = z.object({
  id: z.int().min(1),
  at: Timestamp,
  event: z.string(),
  code: z.string().optional(),
  message: z.string(),
  subject: z.string().optional(),
  details: z.record(z.string(), z.unknown()),
});
export type EventRecord = z.infer<typeof EventRecord>;

/** The caller: name, role and tenant of its token, and the IP address of the request. */
export const Actor = z.object({
  name: z.string(),
  role: z.string(),
  tenant: z.string(),
  address: z.string(),
});
export type Actor = z.infer<typeof Actor>;

export const AuditRecord = z.object({
  id: z.int().min(1),
  at: Timestamp,
  /** The action, e.g. `deployment.create`. */
  action: z.string(),
  /** `done`, or the code of an error after which the outcome is unknown. */
  outcome: z.string(),
  subject: z.string().optional(),
  actor: Actor,
  /** The instance that was called. */
  instance_id: z.string(),
  details: z.record(z.string(), z.unknown()),
});
export type AuditRecord = z.infer<typeof AuditRecord>;

/** One interval of the last minutes, as counted by the instance that answered. */
export const StatsPoint = z.object({
  /** When the interval ended. */
  at: Timestamp,
  /** Jobs that ended in it, by outcome; outcomes without a job are left out. */
  ended: z.partialRecord(JobOutcome, Count),
  /** From submission to assignment; null without an assigned job. */
  dispatch_ms: z.object({ p50: z.number().min(0), p99: z.number().min(0) }).nullable(),
  slots: z.object({ capacity: Count, reserved: Count }),
  /** Deployments that node-units claimed, and deployments that were released from lost ones. */
  claimed: Count,
  released: Count,
  /** Leases of signers taken over after they expired. */
  leases_taken_over: Count,
});
export type StatsPoint = z.infer<typeof StatsPoint>;

export const Stats = z.object({
  at: Timestamp,
  /** The instance that answered. `jobs`, `sessions` and `points` are its own counts; the rest is the fleet. */
  instance_id: InstanceId,
  nodes: z.object({ online: Count, draining: Count, away: Count }),
  sessions: z.object({ online: Count }),
  deployments: z.object({ enabled: Count, unassigned: Count, running: Count, failing: Count }),
  jobs: z.object({ waiting: Count, running: Count, ended: z.record(JobOutcome, Count) }),
  slots: z.object({ capacity: Count, reserved: Count }),
  signers: z.object({ held: Count, released: Count, quarantined: Count }),
  dlq: z.object({ entries: Count }),
  interval_ms: DurationMs,
  /** Oldest first. On the stream only the newest one. */
  points: z.array(StatsPoint),
});
export type Stats = z.infer<typeof Stats>;

/** One change on `/stream`: the reader fetches the object again, or removes it. `item` saves the fetch. */
export const StreamItem = z.object({
  topic: z.enum([
    "nodes",
    "deployments",
    "jobs",
    "sessions",
    "signers",
    "cluster",
    "events",
    "stats",
  ]),
  op: z.enum(["changed", "removed"]),
  id: z.string(),
  at: Timestamp,
  item: z.unknown().optional(),
});
export type StreamItem = z.infer<typeof StreamItem>;

export const Login = z.object({ token: z.string().min(1).max(1_024) });
export type Login = z.infer<typeof Login>;

/** The identity of the caller. */
export const Principal = z.object({
  name: z.string(),
  role: Role,
  /** `*` = all. */
  tenant: z.union([Tenant, z.literal(ANY_TENANT)]),
  /** Whether it may act on objects that all tenants share. Absent from a server of 0.1.0, where every admin may. */
  operates: z.boolean().optional(),
});
export type Principal = z.infer<typeof Principal>;
