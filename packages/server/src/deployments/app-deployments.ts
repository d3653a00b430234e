import { type ResourceUsage, sharesTenant } from "@tenure/protocol";
import { matchWhole } from "@tenure/protocol/pattern";
import type { ChildTokens } from "../access/child-tokens.ts";
import type { Config } from "../config.ts";
import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import { type Random, uuid7 } from "../kernel/random.ts";
import type { Service } from "../kernel/service.ts";
import type { Membership } from "../membership/membership.ts";
import { findNodeUnits } from "../membership/store/node-unit-store.ts";
import type { PeerFetch } from "../peers/peer-fetch.ts";
import type { Secrets } from "../secrets/secrets.ts";
import type { PostgresStore } from "../store/db.ts";
import type { Telemetry } from "../telemetry.ts";
import { createDeploymentAdmin, type DeploymentAdmin } from "./deployment-admin.ts";
import { createDeployments, type Deployments } from "./deployments.ts";
import { createFollowedLogs } from "./followed-logs.ts";
import { createNodeRelay } from "./node-relay.ts";
import { forgetRemoved } from "./store/change-store.ts";
import { forgetOldStatuses } from "./store/status-store.ts";

export interface AppDeploymentsOptions {
  config: Config;
  instanceId: string;
  bootId: string;
  db: PostgresStore;
  clock: Clock;
  random: Random;
  log: Log;
  peerFetch?: PeerFetch | undefined;
  telemetry: Telemetry;
  membership: Membership;
  secrets: Secrets;
  childTokens: Pick<ChildTokens, "maker">;
  instances: () => Promise<{ instance_id: string; url: string }[]>;
  onChange: (id: string, op: "changed" | "removed", tenants: readonly string[]) => void;
}

export interface AppDeployments extends Service {
  forNodes: Deployments;
  admin: DeploymentAdmin;
  endFollowing(): void;
  forgetOld(): Promise<void>;
}

/** Creates the parts of the deployments from the settings and connects them to membership. */
export function createAppDeployments(options: AppDeploymentsOptions): AppDeployments {
  const { config, instanceId, bootId, db, clock, random, log, telemetry, membership } = options;
  const { members, nodes, fleet } = membership;
  const { secrets } = options;
  const presenceTtlMs = config.scheduler.phase2.node_snapshot.presence_ttl_seconds * 1_000;

  /** Samples of node-units that renewed their presence lately, by the database's clock. */
  function samples(tenants: readonly string[] | undefined): Record<string, ResourceUsage> {
    const { rows } = members.current();
    const silent = members.silent();
    const recent = new Set(
      rows.flatMap(({ address, present }) => (present && !silent.has(address) ? address : [])),
    );
    const fresh = fleet
      .views()
      .flatMap(({ node_id, resource_usage, tenants: its }) =>
        resource_usage && recent.has(node_id) && sharesTenant(its, tenants)
          ? [[node_id, resource_usage] as const]
          : [],
      );
    return Object.fromEntries(fresh);
  }

  const followed = createFollowedLogs();
  const forNodes = createDeployments({
    origin: bootId.slice(-12),
    db,
    clock,
    log,
    secrets,
    childTokens: options.childTokens,
    view: () => members.current().view,
    brakeTtlMs: config.membership.mass_loss_brake ? presenceTtlMs : undefined,
    connected: nodes.connected,
    samples,
    telemetry,
    onRows: followed.onChanges,
    onChange: options.onChange,
  });
  const relay = createNodeRelay({
    instanceId,
    peerToken: config.auth.peer_token,
    peerFetch: options.peerFetch,
    connected: nodes.connected,
    present: () => members.current().rows.filter((row) => row.present),
    instances: options.instances,
  });
  const admin = createDeploymentAdmin({
    db,
    relay,
    followed,
    secrets,
    newId: () => uuid7(random, clock.wallMs()),
    refresh: forNodes.refresh,
    async surroundings(scope, also) {
      const { rows, view } = members.current();
      const here = rows.filter(({ present }) => present);
      const listed = new Set(here.map(({ address }) => address));
      const others = (await findNodeUnits(db, also)).filter(({ address }) => !listed.has(address));
      const nodes = [...here, ...others].filter(({ tenants }) =>
        sharesTenant(tenants, scope.tenants),
      );
      return { nodes, view, brakeOf: (tenant) => members.brake([tenant]), nowMs: clock.wallMs() };
    },
    matches: matchWhole,
  });

  return {
    forNodes,
    admin,
    endFollowing: relay.close,
    async forgetOld() {
      await forgetRemoved(db);
      await forgetOldStatuses(db);
    },
    start: forNodes.start,
    stop: forNodes.stop,
  };
}
