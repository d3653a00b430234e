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
      help: "Requests refused before any work: host, origin, token or role. A rise is a wrong client or an attack.",
      labelNames: ["reason"],
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
      help: "Deployments taken from lost nodes through this instance.",
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
    redisOps: new Counter({
      name: "scheduler_phase2_redis_op_total",
      help: "Scripts run on Redis, by name and result.",
      labelNames: ["op", "result"],
      registers,
    }),
  };
}

export type Telemetry = ReturnType<typeof createTelemetry>;
