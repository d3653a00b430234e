import type { NodeView } from "@tenure/protocol";
import type { Config } from "../config.ts";
import { EVERYTHING } from "../kernel/scope.ts";
import type { Telemetry } from "../telemetry.ts";
import { createMembership, type Membership, type MembershipOptions } from "./membership.ts";

export interface AppMembershipOptions extends Omit<MembershipOptions, "settings"> {
  config: Config;
  telemetry: Telemetry;
}

/** Membership with the settings of the configuration and its metrics. */
export function createAppMembership(options: AppMembershipOptions): Membership {
  const { telemetry } = options;
  const membership: Membership = createMembership({
    ...options,
    settings: settingsOf(options.config),
    onRefresh(nodes) {
      countNodes(telemetry, nodes);
      telemetry.brakeActive.set(membership.members.brake(EVERYTHING.tenants).active ? 1 : 0);
      options.onRefresh(nodes);
    },
  });
  return membership;
}

function settingsOf(config: Config): MembershipOptions["settings"] {
  const { phase2, session_gone_after_seconds } = config.scheduler;
  const { node_snapshot: snapshot } = phase2;
  return {
    presenceTtlMs: snapshot.presence_ttl_seconds * 1_000,
    ownerTtlMs: phase2.owner_ttl_seconds * 1_000,
    refreshIntervalMs: snapshot.refresh_interval_ms,
    removeStaleAfterMs: snapshot.remove_stale_after_seconds * 1_000,
    sessionGoneAfterMs: session_gone_after_seconds * 1_000,
    tokenSessionsMax: config.limits.token_sessions_max,
    brakeEnabled: config.membership.mass_loss_brake,
    snapshotsEnabled: snapshot.enabled,
  };
}

function countNodes(telemetry: Telemetry, nodes: readonly NodeView[]): void {
  const online = nodes.filter((node) => node.online);
  const units = online.filter((node) => node.node_unit).length;
  telemetry.nodes.set({ kind: "node_unit" }, units);
  telemetry.nodes.set({ kind: "worker" }, online.length - units);
}
