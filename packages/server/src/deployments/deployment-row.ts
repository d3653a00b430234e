import {
  DEFAULT_TENANT,
  type DeploymentReport,
  type DeploymentStatus,
  type FieldIssue,
  type StoredDeployment,
} from "@tenure/protocol";
import type { NewEvent } from "../store/event-store.ts";

/** A problem of a row, as the event that reports it. */
export type RowProblem = NewEvent & { subject: string; details: Record<string, unknown> };

/** A row of `deployment` whose columns all have their types. */
export interface DeploymentRow extends Omit<StoredDeployment, "created_at" | "updated_at"> {
  created_at: Date;
  updated_at: Date;
  /** Of the secrets that `env` refers to. */
  secret_versions?: Readonly<Record<string, number>>;
  /** Columns that could not be read. Each has a neutral value. */
  invalid?: readonly FieldIssue[];
  /** In the cache: why node-units skip it. Its specification is then the last good one. */
  skipped?: RowProblem;
  /** In the cache: no good specification or no term of it is known. Node-units keep what they have of it. */
  isHidden?: boolean;
}

/** An instance of 0.1.0 writes no tenant. */
export const tenantOf = ({ tenant = DEFAULT_TENANT }: Pick<DeploymentRow, "tenant">): string =>
  tenant;

/** A row of `deployment_status`. */
export interface StatusRow extends Omit<DeploymentStatus, "started_at" | "updated_at" | "past"> {
  started_at: Date | null;
  updated_at: Date;
  /** After this time without contact the node stops the deployment. */
  lost_after_ms?: number | null | undefined;
}

export interface NodeTerm {
  address: string;
  epoch: number;
}

export type Report = DeploymentReport;

/** Field by field: a row may have columns of a newer version, which are not sent. */
export function renderDeployment(row: DeploymentRow): StoredDeployment {
  return {
    id: row.id,
    tenant: tenantOf(row),
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

export function renderStatus(row: StatusRow, past: boolean): DeploymentStatus {
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
    past,
  };
}

/** Whether a status is out of date: its term ended, the deployment left the node, or the node is away. */
export function isPast(
  row: Pick<DeploymentRow, "type" | "generation" | "address" | "moving_to">,
  status: Pick<StatusRow, "address" | "generation">,
  isPresent: (address: string) => boolean,
): boolean {
  const { address, generation } = status;
  const isAssigned = row.type === "daemon" || address === row.address || address === row.moving_to;
  return generation !== row.generation || !isAssigned || !isPresent(address);
}
