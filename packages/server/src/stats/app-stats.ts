import { type Stats, sharesTenant } from "@tenure/protocol";
import type { Delivery } from "../delivery/contract.ts";
import { countDeployments } from "../deployments/store/count-store.ts";
import type { Jobs } from "../jobs/jobs.ts";
import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import type { Scope } from "../kernel/scope.ts";
import type { Membership } from "../membership/membership.ts";
import { countAwayUnits } from "../membership/store/node-unit-store.ts";
import type { Db } from "../store/db.ts";
import type { Telemetry } from "../telemetry.ts";
import { createStats, type StatsKeeper } from "./stats.ts";

export interface AppStatsOptions {
  instanceId: string;
  db: Db;
  clock: Clock;
  log: Log;
  telemetry: Telemetry;
  membership: Membership;
  jobs: Jobs;
  delivery: Delivery;
  followers: () => Scope[];
  publish: (scope: Scope, stats: Stats) => void;
}

/** More dead letters than this are not counted for the overview. */
const LETTERS_COUNTED_MAX = 1_000;

/** The figures of the overview, read from the domains. */
export function createAppStats(options: AppStatsOptions): StatsKeeper {
  const { db, membership, jobs, delivery } = options;
  return createStats({
    ...options,
    nodes: ({ tenants }) =>
      membership.fleet.views().filter((node) => sharesTenant(node.tenants, tenants)),
    away: (scope) => countAwayUnits(db, scope),
    deployments: (scope) => countDeployments(db, scope),
    open: (tenants) => ({
      ...jobs.openOf(tenants),
      sessions: membership.sessions.connected().filter(({ tenant }) => tenants.includes(tenant))
        .length,
    }),
    letters: async () => (await delivery.dlq.list({ limit: LETTERS_COUNTED_MAX })).length,
  });
}
