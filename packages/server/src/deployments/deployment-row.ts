import type { DeploymentReport, DeploymentStatus, StoredDeployment } from "@tenure/protocol";

/** A row of `deployment`, as both drivers give it. */
export interface DeploymentRow extends Omit<StoredDeployment, "created_at" | "updated_at"> {
  created_at: Date;
  updated_at: Date;
}

/** A row of `deployment_status`. */
export interface StatusRow extends Omit<DeploymentStatus, "started_at" | "updated_at"> {
  started_at: Date | null;
  updated_at: Date;
}

export interface NodeTerm {
  address: string;
  epoch: number;
}

export type Report = DeploymentReport;

/** Written out: a row may hold columns of a newer version, and none of those belongs on the wire. */
export function renderDeployment(row: DeploymentRow): StoredDeployment {
  return {
    id: row.id,
    name: row.name,
    package_name: row.package_name,
    package_version: row.package_version,
    command: row.command,
    args: row.args,
    env: row.env,
    type: row.type,
    address: row.address,
    enabled: row.enabled,
    selector: row.selector,
    lost_after_ms: row.lost_after_ms,
    generation: row.generation,
    revision: row.revision,
    moving_to: row.moving_to,
    move_state: row.move_state,
    created_at: row.created_at.toISOString(),
    updated_at: row.updated_at.toISOString(),
  };
}

export function renderStatus(row: StatusRow): DeploymentStatus {
  return {
    deployment_id: row.deployment_id,
    address: row.address,
    state: row.state,
    generation: row.generation,
    pid: row.pid,
    restarts: row.restarts,
    exit_code: row.exit_code,
    signal: row.signal,
    last_error: row.last_error,
    spec_hash: row.spec_hash,
    started_at: row.started_at?.toISOString() ?? null,
    updated_at: row.updated_at.toISOString(),
  };
}
