import type { Config } from "../config.ts";
import type { Deployments } from "../deployments/deployments.ts";
import type { Jobs } from "../jobs/jobs.ts";
import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import type { Random } from "../kernel/random.ts";
import type { Membership } from "../membership/membership.ts";
import type { Telemetry } from "../telemetry.ts";
import { createCallBudgets } from "./call-budget.ts";
import { type Gateway, type GatewayOptions, openGateway } from "./gateway.ts";
import { JoinPace } from "./join-pace.ts";
import { createNodeCalls } from "./node-calls.ts";

export interface AppGatewayOptions
  extends Omit<GatewayOptions, "frameBytesMax" | "onSockets" | "node" | "session"> {
  config: Config;
  clock: Clock;
  log: Log;
  random: Random;
  telemetry: Telemetry;
  instanceId: string;
  heartbeatIntervalMs: number;
  membership: Membership;
  jobs: Jobs;
  deployments: { forNodes: Deployments };
}

/** The gateway with the settings of the configuration and its metrics. */
export function openAppGateway(options: AppGatewayOptions): Gateway {
  const { telemetry, instanceId, clock, log, random, membership, jobs } = options;
  const { limits } = options.config;
  return openGateway({
    ...options,
    frameBytesMax: limits.ws_frame_bytes,
    onSockets: (kind, change) => telemetry.sockets.inc({ kind }, change),
    node: {
      ...{ instanceId, clock, random, heartbeatIntervalMs: options.heartbeatIntervalMs },
      nodes: membership.nodes,
      calls: createNodeCalls(options.deployments.forNodes),
      budgetOf: createCallBudgets(limits.token_calls_per_second_max, clock),
      joins: new JoinPace({
        ...{ clock, log },
        onRefused: () => telemetry.nodesRefused.inc(),
      }),
      jobs: jobs.nodes,
    },
    session: { instanceId, sessions: membership.sessions, jobs: jobs.sessions },
  });
}
