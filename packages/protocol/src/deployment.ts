import * as z from "zod";
import {
  ClientId,
  Count,
  DeploymentId,
  DurationMs,
  Generation,
  INT4_MAX,
  Labels,
  NodeAddress,
  Pool,
  SmallCount,
  Tenant,
  Timestamp,
  text,
} from "./formats.ts";
import { EnvValue, SecretName, SecretRef } from "./secrets/secret.ts";

const DEPLOYMENT_TYPES = ["daemon", "deployment"] as const;
export const DeploymentType = z.enum(DEPLOYMENT_TYPES);
export type DeploymentType = z.infer<typeof DeploymentType>;

export function isDeploymentType(type: string): type is DeploymentType {
  return DeploymentType.safeParse(type).success;
}

const ARGS_MAX = 256;

const Env = z.record(
  z.string().regex(/^[A-Za-z_][A-Za-z0-9_]{0,127}$/, "must be the name of an environment variable"),
  z.union([text(32_768), SecretRef.extend({ secret: SecretName })]),
);
const GRANTS_MAX = 64;
/** A signer, or the beginning of one and a `*`. */
const SignerPattern = z
  .string()
  .regex(/^(?=.)[A-Za-z0-9._:-]{0,200}\*?$/, "must be a signer, or the beginning of one and a *");

/** What the children of a deployment may use with their token: submit to these pools, take nonces of these signers. */
export const Grants = z.strictObject({
  pools: z.array(Pool).max(GRANTS_MAX).optional(),
  signers: z.array(SignerPattern).max(GRANTS_MAX).optional(),
});
export type Grants = z.infer<typeof Grants>;

const Args = z.array(text(4_096)).max(ARGS_MAX);

/** A row of the table `deployment`, and the seed's `IDeployment` (R10). */
export const Deployment = z.object({
  id: DeploymentId,
  /** Only nodes that serve this tenant run it. Absent: `default`, as in release 0.1.0. */
  tenant: z.string().optional(),
  /** Unique within its tenant. */
  name: z.string(),
  package_name: z.string(),
  package_version: z.string(),
  command: z.string(),
  args: z.array(z.string()),
  env: z.record(z.string(), EnvValue),
  type: DeploymentType,
  /** The node-unit that owns it, or ''. Any text: a row may name an unknown node. */
  address: z.string(),
  enabled: z.boolean(),
  selector: z.record(z.string(), z.string()),
  grants: Grants.optional(),
  lost_after_ms: DurationMs,
  /** The term, incremented at every claim and release. A write with an older one is refused. */
  generation: Generation,
  /** Incremented at every change of the specification; `if_revision` is compared with it. */
  revision: Count,
  /** While its owner is drained: the node that takes it over, or ''. */
  moving_to: z.string().default(""),
  /** `installing` and `ready` on the next node, `stopped` on this one; then the next node claims it. */
  move_state: z.enum(["", "installing", "ready", "stopped"]).default(""),
  created_at: Timestamp,
  updated_at: Timestamp,
});
export type Deployment = z.infer<typeof Deployment>;
export type IDeployment = Deployment;

/**
 * The row as stored. `type` is any text (R11), so that one bad row can be reported and skipped and does not make the
 * whole list unreadable.
 */
export const StoredDeployment = Deployment.extend({ type: z.string() });
export type StoredDeployment = z.infer<typeof StoredDeployment>;

/** A row as a node gets it: with `args` and `env` only if this node runs it or takes it over next. */
export const ListedDeployment = StoredDeployment.omit({ grants: true }).extend({
  args: StoredDeployment.shape.args.optional(),
  env: StoredDeployment.shape.env.optional(),
  /** Instead of `env`: the names in it that a node without custom commands refuses. */
  loader_env: z.array(z.string()).optional(),
  /** Instead of `env`: it refers to a secret. */
  uses_secrets: z.boolean().optional(),
  /** The `TENURE_TOKEN` of its child, for the node that runs it. */
  child_token: z.string().optional(),
  /** Of the secrets that `env` refers to. The hash of the specification has them: a changed value restarts the child. */
  secret_versions: z.record(z.string(), Count).optional(),
});
export type ListedDeployment = z.infer<typeof ListedDeployment>;

const DEPLOYMENT_STATES = [
  "installing",
  "starting",
  "running",
  "backoff",
  "stopping",
  "stopped",
  "failed",
  "refused",
] as const;
export const DeploymentState = z.enum(DEPLOYMENT_STATES);
export type DeploymentState = z.infer<typeof DeploymentState>;

/** The report of a node about one deployment it runs. A field that is left out keeps its former value. */
export const DeploymentReport = z.object({
  deployment_id: DeploymentId,
  generation: Generation,
  state: DeploymentState,
  pid: z.int().min(1).max(INT4_MAX).nullish(),
  restarts: SmallCount.optional(),
  exit_code: z.int().min(-INT4_MAX).max(INT4_MAX).nullish(),
  signal: text(32).nullish(),
  last_error: text(4_096).nullish(),
  spec_hash: text(128).nullish(),
  started_at: Timestamp.nullish(),
  /** From the row as the node has it, which the node obeys while it is disconnected. */
  lost_after_ms: DurationMs.optional(),
});
export type DeploymentReport = z.infer<typeof DeploymentReport>;

/** A row of `deployment_status`: one deployment on one node. */
export const DeploymentStatus = z.object({
  deployment_id: DeploymentId,
  address: z.string(),
  state: DeploymentState,
  generation: Generation,
  pid: z.int().nullable(),
  restarts: Count,
  exit_code: z.int().nullable(),
  signal: z.string().nullable(),
  last_error: z.string().nullable(),
  spec_hash: z.string().nullable(),
  started_at: Timestamp.nullable(),
  updated_at: Timestamp,
  /** True for a former term or owner, or a disconnected node: the last report, not the current state. */
  past: z.boolean().optional(),
});
export type DeploymentStatus = z.infer<typeof DeploymentStatus>;

/** A column whose value the API would refuse. `path` begins with the name of the column. */
const RowIssue = z.object({ path: z.string(), message: z.string() });

/** A deployment with the reports of its nodes. */
export const DeploymentView = StoredDeployment.extend({
  status: z.array(DeploymentStatus),
  /** Columns that cannot be parsed, shown here with an empty value. Node-units skip such a row. */
  invalid: z.array(RowIssue).optional(),
});
export type DeploymentView = z.infer<typeof DeploymentView>;

/**
 * `type` and `address` are plain text here although few values are valid: their errors have codes of their own
 * (`ERR_INVALID_TYPE`, `ERR_DAEMON_ADDRESS_SET`), which a schema cannot return. Package names and versions are checked by
 * the node that would install them.
 */
const specification = {
  name: ClientId.optional(),
  package_name: text(214).optional(),
  package_version: text(128).optional(),
  command: text(4_096).optional(),
  args: Args.optional(),
  env: Env.optional(),
  type: text(64).optional(),
  address: text(128).optional(),
  enabled: z.boolean().optional(),
  selector: Labels.optional(),
  grants: Grants.optional(),
  lost_after_ms: DurationMs.optional(),
  /** Pins the deployment to one node, now and at every later claim; null unpins it. */
  pin: NodeAddress.nullish(),
};

export const DeploymentCreate = z
  .object({
    ...specification,
    /** The tenant of the caller, or any with a token of all tenants. */
    tenant: Tenant.optional(),
  })
  .refine((spec) => spec.package_name || spec.command, "needs a package_name or a command");
export type DeploymentCreate = z.infer<typeof DeploymentCreate>;

export const DeploymentPatch = z.object({
  ...specification,
  if_revision: SmallCount.optional(),
  /**
   * Applies a lowered `lost_after_ms` at once, also for an owner that has not received it, and a move to another tenant also
   * while a node that does not serve the tenant runs it: two copies are possible.
   */
  force: z.boolean().optional(),
  /** Moves it to this tenant. Requires a token of all tenants. A node that does not serve the tenant loses it. */
  tenant: Tenant.optional(),
});
export type DeploymentPatch = z.infer<typeof DeploymentPatch>;

/** Why a deployment is unassigned or not running: the answer in one sentence, then the reasons. */
export const DeploymentWhy = z.object({
  deployment_id: DeploymentId,
  answer: z.string(),
  reasons: z.array(
    z.object({ code: z.string(), message: z.string(), address: z.string().optional() }),
  ),
});
export type DeploymentWhy = z.infer<typeof DeploymentWhy>;

/** Whether a term is still current; `generation` is the current one. */
export const FenceCheck = z.object({
  deployment_id: DeploymentId,
  fence: z.enum(["current", "stale"]),
  generation: Generation,
});
export type FenceCheck = z.infer<typeof FenceCheck>;

/** A former specification, and when it was replaced. */
export const DeploymentRevision = Deployment.pick({
  revision: true,
  package_name: true,
  package_version: true,
  command: true,
  args: true,
  env: true,
  selector: true,
  grants: true,
  lost_after_ms: true,
}).extend({ type: z.string(), replaced_at: Timestamp });
export type DeploymentRevision = z.infer<typeof DeploymentRevision>;
