import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from "prom-client";

/**
 * Every metric of the server: tenure_<area>_<what>_<unit>, and the seed's own names. Labels have few values that are
 * known in advance; ids belong in logs. docs/telemetry.md lists the same names; a test compares them.
 * Each app has its own registry, so that two instances in one process do not count together.
 */
export function createTelemetry() {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry, prefix: "tenure_" });
  const define = metricsIn(registry);
  return {
    registry,
    ...edgeMetrics(define),
    ...membershipMetrics(define),
    ...deploymentMetrics(define),
    ...deliveryMetrics(define),
    ...jobMetrics(define),
    ...turnMetrics(define),
    ...nonceMetrics(define),
    ...storeMetrics(define),
  };
}

export type Telemetry = ReturnType<typeof createTelemetry>;

/** Defines metrics in a registry. */
export function metricsIn(registry: Registry) {
  const registers = [registry];
  return {
    counter: <L extends string = never>(name: string, help: string, labelNames: L[] = []) =>
      new Counter<L>({ name, help, labelNames, registers }),
    gauge: <L extends string = never>(name: string, help: string, labelNames: L[] = []) =>
      new Gauge<L>({ name, help, labelNames, registers }),
    histogram: <L extends string = never>(
      name: string,
      help: string,
      { buckets, labelNames = [] }: { buckets: number[]; labelNames?: L[] },
    ) => new Histogram<L>({ name, help, buckets, labelNames, registers }),
  };
}

type Define = ReturnType<typeof metricsIn>;

export const edgeMetrics = ({ counter, gauge, histogram }: Define) => ({
  httpSeconds: histogram(
    "tenure_http_request_seconds",
    "Time from the first byte of a request to the end of its response, by route.",
    {
      labelNames: ["method", "route", "status"],
      buckets: [0.002, 0.005, 0.02, 0.1, 0.5, 2, 10],
    },
  ),
  refusedRequests: counter(
    "tenure_http_refused_total",
    "Requests refused before any work: host, origin, token or role, and connections closed at a limit. A rise is a wrong client or an attack.",
    ["reason"],
  ),
  certificateExpires: gauge(
    "tenure_tls_certificate_expires_timestamp_seconds",
    "When the certificate of this listener expires, in seconds since 1970; 0 without TLS. Alert before that time.",
  ),
  nodesRefused: counter(
    "tenure_nodes_refused_total",
    "Nodes that were asked to connect later, because more joined at once than this instance can carry. They come back by themselves.",
  ),
  signIns: counter(
    "tenure_sign_ins_total",
    "Sign-ins at the console, by result. Slowed ones came from an address with too many failures.",
    ["result"],
  ),
  auditLost: counter(
    "tenure_audit_lost_total",
    "Audit lines that could not be written to audit.file, and entries that could not be stored in Postgres. Both are in the log.",
    ["where"],
  ),
  dependencyUp: gauge(
    "tenure_dependency_up",
    "1 while the last readiness check of this store succeeded, else 0.",
    ["dependency"],
  ),
  sockets: gauge("tenure_sockets", "Open WebSockets of nodes and sessions on this instance.", [
    "kind",
  ]),
});

export const membershipMetrics = ({ counter, gauge }: Define) => ({
  instanceRenewals: counter(
    "tenure_instance_renewals_total",
    "Renewals of this instance's presence. After errors for a whole TTL the other instances treat it as gone.",
    ["result"],
  ),
  nodes: gauge(
    "tenure_nodes_online",
    "Nodes online in the whole fleet, as seen by this instance. Instances that differ for long are disconnected from each other.",
    ["kind"],
  ),
  brakeActive: gauge(
    "tenure_membership_brake_active",
    "1 while the mass-loss brake of a tenant is on: deployments stay on lost nodes until the nodes are back or the brake is released.",
  ),
});

export const deploymentMetrics = ({ counter, gauge }: Define) => ({
  deploymentClaims: counter(
    "tenure_deployment_claims_total",
    "Claims of node-units by result. Many conflicts per claim mean that too many nodes wake at once.",
    ["result"],
  ),
  deploymentsReleased: counter(
    "tenure_deployment_released_total",
    "Deployments released through this instance: taken from lost nodes, or given back by stopping ones.",
  ),
  deploymentReports: counter(
    "tenure_deployment_reports_total",
    "Status reports of nodes about deployments, by result. Fenced ones came from a node that had been replaced.",
    ["result"],
  ),
  deploymentLists: counter(
    "tenure_deployment_lists_total",
    "Answers to deployment.list. On a quiet fleet nearly all are unchanged.",
    ["answer"],
  ),
  deployments: gauge(
    "tenure_deployments",
    "Deployments by assignment. If one stays unassigned, run `tenure deployment why`.",
    ["assignment"],
  ),
});

export const deliveryMetrics = ({ counter, gauge }: Define) => ({
  deliveries: counter(
    "tenure_delivery_messages_total",
    "Messages between instances, by outcome. Many left or refused mean that an instance does not read its inbox.",
    ["event"],
  ),
  inboxPending: gauge(
    "scheduler_phase2_inbox_pending",
    "Messages in this instance's inbox that are not acknowledged yet.",
  ),
  dlqMoved: counter(
    "scheduler_phase2_dlq_moved_total",
    "Messages that became dead letters, by reason. Inspect them with tenure dlq ls.",
    ["reason"],
  ),
});

export type DeliveryMetrics = ReturnType<typeof deliveryMetrics>;

export const jobMetrics = ({ counter, gauge, histogram }: Define) => ({
  jobsSubmitted: counter(
    "tenure_job_submitted_total",
    "Requests to run a job, by result. Many duplicates mean that clients retry before the answer arrives.",
    ["result"],
  ),
  jobDispatchSeconds: histogram(
    "tenure_job_dispatch_seconds",
    "Time from accepting a job on this instance to sending it to a node, including queueing.",
    { buckets: [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2, 10] },
  ),
  jobsWaiting: gauge(
    "tenure_job_waiting",
    "Jobs that wait for a slot on this instance. At queue_max per tenant and pool new ones are refused.",
  ),
  jobQueueAgeSeconds: gauge(
    "tenure_job_queue_age_seconds",
    "Age of the oldest job that waits for a slot on this instance; 0 when none does.",
  ),
  jobsLive: gauge(
    "tenure_job_live",
    "Jobs tracked by this instance: waiting here, or on nodes connected here.",
  ),
  jobRetries: counter(
    "tenure_job_retries_total",
    "Attempts that failed and were followed by another, by reason.",
    ["reason"],
  ),
  jobsEnded: gauge(
    "tenure_job_ended",
    "Ended jobs that are kept, by all instances together. Near jobs.ended_max new ones are refused.",
  ),
  jobsEndedBytes: gauge(
    "tenure_job_ended_bytes",
    "Estimated memory of ended jobs, by all instances together. Above jobs.ended_bytes_max results of the oldest are dropped.",
  ),
  jobBodiesDropped: counter(
    "tenure_job_bodies_dropped_total",
    "Ended jobs whose result and timeline this instance dropped before retention_seconds, to make room.",
  ),
  jobsFinished: counter(
    "tenure_job_finished_total",
    "Jobs that this instance finished, by outcome.",
    ["outcome"],
  ),
  jobAttempts: histogram(
    "tenure_job_attempts",
    "Attempts per finished job. Above 1 nodes are lost, too slow, or fail.",
    { buckets: [1, 2, 3, 5, 10, 100] },
  ),
  jobReports: counter(
    "tenure_job_reports_total",
    "Reports of nodes about jobs, by kind and by answer of the job's record. Stale ones came too late.",
    ["kind", "answer"],
  ),
  jobsRescued: counter(
    "tenure_job_rescued_total",
    "Jobs recovered from the due index, by the action that was left to do. A steady rate means that an instance dies or stalls.",
    ["action"],
  ),
  slotsLeaked: gauge(
    "tenure_job_slots_leaked",
    "Slots of ended jobs that the last check found in use, and freed. Must be 0; anything else is a bug.",
  ),
  serviceReports: counter(
    "tenure_job_unavailable_reports_total",
    "Reports of nodes that cannot serve a service, by result. Limited ones were too many and marked nothing.",
    ["result"],
  ),
});

export const turnMetrics = ({ counter, gauge }: Define) => ({
  turnAffinity: counter(
    "tenure_turn_affinity_total",
    "Jobs placed, by whether they went to the node of their turn, or why not.",
    ["outcome"],
  ),
  turnsLeft: gauge(
    "tenure_turn_leftovers",
    "Open turns of sessions that are gone for good, at the last sweep. Must be 0 after it.",
  ),
});

export const nonceMetrics = ({ counter, gauge, histogram }: Define) => ({
  leaseAcquired: counter(
    "tenure_lease_acquired_total",
    "Requests for the lease of a signer: new, taken (free), taken_over (expired), extended, or held by another instance.",
    ["result"],
  ),
  fenceRefused: counter(
    "tenure_fence_refused_total",
    "Writes under an expired lease, refused by Postgres. A steady rate means an instance stalls past lease_ttl_ms.",
    ["op"],
  ),
  nonceQueueDepth: gauge(
    "tenure_nonce_queue_depth",
    "Requests about signers that wait on this instance.",
  ),
  nonceQueueSeconds: histogram(
    "tenure_nonce_queue_seconds",
    "Time from queueing a request of a signer to the answer after its commit.",
    { buckets: [0.002, 0.005, 0.02, 0.1, 0.5, 2, 10] },
  ),
  nonceBatchSize: histogram(
    "tenure_nonce_batch_size",
    "Nonces and marks per signer and commit. Above 1 the signer is busier than one commit at a time.",
    { buckets: [1, 2, 4, 8, 16, 32, 64, 128, 256, 512] },
  ),
  nonceHolds: gauge(
    "tenure_nonce_holds",
    "Nonces of all signers that are not used up, by status. QUARANTINED ones wait for an operator.",
    ["status"],
  ),
  nonceTimeline: gauge(
    "tenure_nonce_timeline",
    "1 for the state of this Postgres' history, else 0. While it is unconfirmed no nonce is allocated.",
    ["state"],
  ),
  nonceHoldsExpired: counter(
    "tenure_nonce_holds_expired_total",
    "Holds that expired without a mark. Their holders crash, or take longer than hold_ttl_ms.",
  ),
});

export const storeMetrics = ({ counter }: Define) => ({
  redisOps: counter(
    "scheduler_phase2_redis_op_total",
    "Scripts run on Redis, by name and result.",
    ["op", "result"],
  ),
});
