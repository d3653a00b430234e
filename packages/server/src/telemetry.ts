import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from "prom-client";

/**
 * Every metric of the server: tenure_<area>_<what>_<unit>, and the seed's own names. Labels have few values,
 * known in advance; ids belong in logs. docs/telemetry.md lists the same names; a test compares them.
 * One set per app and none global, so that two instances in one process do not count together.
 */
export function createTelemetry() {
  const registry = new Registry();
  const registers = [registry];
  collectDefaultMetrics({ register: registry, prefix: "tenure_" });
  return {
    registry,
    httpSeconds: new Histogram({
      name: "tenure_http_request_seconds",
      help: "From the request's first byte to the end of the answer, by route.",
      labelNames: ["method", "route", "status"],
      buckets: [0.002, 0.005, 0.02, 0.1, 0.5, 2, 10],
      registers,
    }),
    refusedRequests: new Counter({
      name: "tenure_http_refused_total",
      help: "Requests refused before any work: host, origin, token or role, and connections closed at a limit. A rise is a wrong client or an attack.",
      labelNames: ["reason"],
      registers,
    }),
    signIns: new Counter({
      name: "tenure_sign_ins_total",
      help: "Sign-ins at the console, by result. Slowed ones came from an address with too many failures.",
      labelNames: ["result"],
      registers,
    }),
    auditLost: new Counter({
      name: "tenure_audit_lost_total",
      help: "Audit lines that audit.file did not take, and entries that Postgres did not. Both are in the log.",
      labelNames: ["where"],
      registers,
    }),
    dependencyUp: new Gauge({
      name: "tenure_dependency_up",
      help: "1 while the last readiness question to this store was answered, else 0.",
      labelNames: ["dependency"],
      registers,
    }),
    instanceRenewals: new Counter({
      name: "tenure_instance_renewals_total",
      help: "Renewals of this instance's own row. Errors for a whole TTL mean that others count it as gone.",
      labelNames: ["result"],
      registers,
    }),
    sockets: new Gauge({
      name: "tenure_sockets",
      help: "Open WebSockets of nodes and sessions on this instance.",
      labelNames: ["kind"],
      registers,
    }),
    nodes: new Gauge({
      name: "tenure_nodes_online",
      help: "Nodes online in the whole fleet, as this instance sees it. Instances that differ for long are cut off.",
      labelNames: ["kind"],
      registers,
    }),
    brakeActive: new Gauge({
      name: "tenure_membership_brake_active",
      help: "1 while the mass-loss brake is on: nothing is taken from lost nodes until they are back or it is released.",
      registers,
    }),
    deploymentClaims: new Counter({
      name: "tenure_deployment_claims_total",
      help: "Claims of node-units by result. Many conflicts per claim mean that too many nodes wake at once.",
      labelNames: ["result"],
      registers,
    }),
    deploymentsReleased: new Counter({
      name: "tenure_deployment_released_total",
      help: "Deployments taken from lost nodes, or given back by stopping ones, through this instance.",
      registers,
    }),
    deploymentReports: new Counter({
      name: "tenure_deployment_reports_total",
      help: "What nodes said of deployments, by result. Fenced ones came from a node that had been replaced.",
      labelNames: ["result"],
      registers,
    }),
    deploymentLists: new Counter({
      name: "tenure_deployment_lists_total",
      help: "Answers to deployment.list. On a quiet fleet nearly all are unchanged.",
      labelNames: ["answer"],
      registers,
    }),
    deployments: new Gauge({
      name: "tenure_deployments",
      help: "Rows by what the table says of them. Unassigned for long: ask `tenure deployment why`.",
      labelNames: ["assignment"],
      registers,
    }),
    deliveries: new Counter({
      name: "tenure_delivery_messages_total",
      help: "Messages between instances, by what became of them. Many left or refused mean that somebody does not read.",
      labelNames: ["event"],
      registers,
    }),
    inboxPending: new Gauge({
      name: "scheduler_phase2_inbox_pending",
      help: "Messages in this instance's inbox that have not come to an end.",
      registers,
    }),
    dlqMoved: new Counter({
      name: "scheduler_phase2_dlq_moved_total",
      help: "Messages that became dead letters, by reason. Each is worth a look: tenure dlq ls.",
      labelNames: ["reason"],
      registers,
    }),
    jobsSubmitted: new Counter({
      name: "tenure_job_submitted_total",
      help: "Requests to run a job, by answer. Many duplicates mean that clients ask again before they hear the answer.",
      labelNames: ["result"],
      registers,
    }),
    jobDispatchSeconds: new Histogram({
      name: "tenure_job_dispatch_seconds",
      help: "From this instance's taking a job in hand to its message to the node, waiting included.",
      buckets: [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2, 10],
      registers,
    }),
    jobsWaiting: new Gauge({
      name: "tenure_job_waiting",
      help: "Jobs that wait for a slot on this instance. At queue_max per pool new ones are refused.",
      registers,
    }),
    jobQueueAgeSeconds: new Gauge({
      name: "tenure_job_queue_age_seconds",
      help: "Age of the oldest job that waits for a slot on this instance; 0 when none does.",
      registers,
    }),
    jobsLive: new Gauge({
      name: "tenure_job_live",
      help: "Jobs in the hands of this instance: waiting here, or on nodes connected here.",
      registers,
    }),
    jobRetries: new Counter({
      name: "tenure_job_retries_total",
      help: "Attempts that came to nothing and were followed by another, by reason.",
      labelNames: ["reason"],
      registers,
    }),
    jobsEnded: new Gauge({
      name: "tenure_job_ended",
      help: "Ended jobs that are kept, by all instances together. Near jobs.ended_max new ones are refused.",
      registers,
    }),
    jobsEndedBytes: new Gauge({
      name: "tenure_job_ended_bytes",
      help: "Estimated memory of ended jobs, by all instances together. Above jobs.ended_bytes_max results of the oldest are dropped.",
      registers,
    }),
    jobBodiesDropped: new Counter({
      name: "tenure_job_bodies_dropped_total",
      help: "Ended jobs whose result and timeline this instance dropped before retention_seconds, to make room.",
      registers,
    }),
    jobsFinished: new Counter({
      name: "tenure_job_finished_total",
      help: "Jobs that this instance brought to their end, by outcome.",
      labelNames: ["outcome"],
      registers,
    }),
    jobAttempts: new Histogram({
      name: "tenure_job_attempts",
      help: "Attempts a job took to its end. Above 1 nodes are lost, too slow, or fail.",
      buckets: [1, 2, 3, 5, 10, 100],
      registers,
    }),
    jobReports: new Counter({
      name: "tenure_job_reports_total",
      help: "What nodes said of jobs, by kind and by what the record answered. Stale ones came too late.",
      labelNames: ["kind", "answer"],
      registers,
    }),
    jobsRescued: new Counter({
      name: "tenure_job_rescued_total",
      help: "Jobs the due index handed over, by what was left to do. A steady rate means that somebody dies or stalls.",
      labelNames: ["action"],
      registers,
    }),
    slotsLeaked: new Gauge({
      name: "tenure_job_slots_leaked",
      help: "Slots of ended jobs found in use at the last look, and freed. Must be 0; anything else is a bug.",
      registers,
    }),
    serviceReports: new Counter({
      name: "tenure_job_unavailable_reports_total",
      help: "Reports of nodes that cannot serve a service, by result. Limited ones were too many and marked nothing.",
      labelNames: ["result"],
      registers,
    }),
    turnAffinity: new Counter({
      name: "tenure_turn_affinity_total",
      help: "Jobs placed, by whether they went to the node of their turn, or why not.",
      labelNames: ["outcome"],
      registers,
    }),
    turnsLeft: new Gauge({
      name: "tenure_turn_leftovers",
      help: "Open turns whose session is gone for good, at the last look. Must be 0 after it.",
      registers,
    }),
    leaseAcquired: new Counter({
      name: "tenure_lease_acquired_total",
      help: "Leases of signers asked for: new, taken (free), taken_over (ran out), extended, or held by somebody else.",
      labelNames: ["result"],
      registers,
    }),
    fenceRefused: new Counter({
      name: "tenure_fence_refused_total",
      help: "Writes of a term that is over, refused by Postgres. A steady rate means an instance stalls past lease_ttl_ms.",
      labelNames: ["op"],
      registers,
    }),
    nonceQueueDepth: new Gauge({
      name: "tenure_nonce_queue_depth",
      help: "Requests about signers that wait on this instance.",
      registers,
    }),
    nonceQueueSeconds: new Histogram({
      name: "tenure_nonce_queue_seconds",
      help: "From a request's arrival in the queue of its signer to the answer after its commit.",
      buckets: [0.002, 0.005, 0.02, 0.1, 0.5, 2, 10],
      registers,
    }),
    nonceBatchSize: new Histogram({
      name: "tenure_nonce_batch_size",
      help: "Numbers and marks per signer and commit. Above 1 the signer is busier than one commit at a time.",
      buckets: [1, 2, 4, 8, 16, 32, 64, 128, 256, 512],
      registers,
    }),
    nonceHolds: new Gauge({
      name: "tenure_nonce_holds",
      help: "Numbers of all signers that are not used up, by status. QUARANTINED ones wait for an operator.",
      labelNames: ["status"],
      registers,
    }),
    nonceTimeline: new Gauge({
      name: "tenure_nonce_timeline",
      help: "1 for the state of this Postgres' history, else 0. While it is unconfirmed no nonce is given out.",
      labelNames: ["state"],
      registers,
    }),
    nonceHoldsExpired: new Counter({
      name: "tenure_nonce_holds_expired_total",
      help: "Holds that ran out without a mark. Their holders crash, or take longer than hold_ttl_ms.",
      registers,
    }),
    redisOps: new Counter({
      name: "scheduler_phase2_redis_op_total",
      help: "Scripts run on Redis, by name and result.",
      labelNames: ["op", "result"],
      registers,
    }),
  };
}

export type Telemetry = ReturnType<typeof createTelemetry>;
