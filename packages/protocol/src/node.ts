import * as z from "zod";
import {
  BootId,
  ClientId,
  Count,
  Epoch,
  InstanceId,
  Labels,
  NodeId,
  Pool,
  Service,
  Tenant,
  Timestamp,
  text,
} from "./formats.ts";
import { ANY_TENANT } from "./tenants.ts";

/** Prefix of labels that the server sets from the node's token. A node's own labels may not have it. */
export const TOKEN_LABEL_PREFIX = "token/";

/** The tag that makes a node a node-unit, which runs deployments. Other tags are free. */
export const NODE_UNIT_TAG = "node_unit";

export const Tags = z.record(ClientId, z.union([text(256), z.boolean()]));
export type Tags = z.infer<typeof Tags>;

/** Limit of a node's labels and tags together, because every node-unit gets those of all others. */
export const TRAITS_MAX = 64;
export const TRAITS_BYTES_MAX = 16 * 1_024;
export const TRAITS_TOO_LARGE = `labels and tags must be at most ${TRAITS_MAX} and ${TRAITS_BYTES_MAX} bytes together`;

export function areTraitsSmall({
  labels = {},
  tags,
}: {
  labels?: Labels | undefined;
  tags: Tags;
}): boolean {
  const count = Object.keys(labels).length + Object.keys(tags).length;
  return count <= TRAITS_MAX && utf8Length(JSON.stringify([labels, tags])) <= TRAITS_BYTES_MAX;
}

/** Each surrogate of a pair counts 2 of its 4 bytes. */
function utf8Length(value: string): number {
  let bytes = value.length;
  for (let at = 0; at < value.length; at++) {
    const unit = value.charCodeAt(at);
    if (unit >= 0x80) bytes += unit >= 0x800 && (unit < 0xd800 || unit > 0xdfff) ? 2 : 1;
  }
  return bytes;
}

export function isNodeUnit(tags: Tags): boolean {
  const tag = tags[NODE_UNIT_TAG];
  return tag === true || tag === "true";
}

/** The tag of a node-unit that is stopping. It claims nothing, so other nodes do not wait for it to claim. */
export const LEAVING_TAG = "node_unit_leaving";

export const isLeaving = (tags: Tags): boolean => tags[LEAVING_TAG] === true;

/** The policies that come with Tenure. A node may register others of its own. */
export const CLAIM_POLICIES = ["deployment_count", "resource_usage", "none"] as const;

/** Lower-cased while parsing, so that `NONE` is the `none` of the claim statements. */
export const ClaimPolicyName = z
  .string()
  .regex(/^[A-Za-z0-9._-]{1,64}$/, "must be 1 to 64 of A-Z a-z 0-9 . _ -")
  .toLowerCase();
export type ClaimPolicyName = z.infer<typeof ClaimPolicyName>;

const POOLS_MAX = 256;
export const Pools = z.array(Pool).max(POOLS_MAX);

export const SERVICES_MAX = 1_024;
export const Services = z.array(Service).max(SERVICES_MAX);

/** How many jobs a node runs at once. */
export const CAPACITY_MAX = 10_000;
export const Capacity = Count.max(CAPACITY_MAX);

/** Percentages are shares of the whole machine, all cores together. */
export const ResourceUsage = z.object({
  cpu_percent: z.number().min(0),
  memory_percent: z.number().min(0),
  memory_mb: z.number().min(0),
});
export type ResourceUsage = z.infer<typeof ResourceUsage>;

/** The tenants a node serves; `["*"]` means all. */
export const Tenants = z.array(z.union([Tenant, z.literal(ANY_TENANT)])).max(1_024);

/** A node-unit in the members view, with the fields that other node-units need for their claims. */
export const Member = z.object({
  address: NodeId,
  name: z.string(),
  instance_id: InstanceId,
  epoch: Epoch,
  claim_policy: ClaimPolicyName,
  labels: Labels,
  trusted_package_regexp: z.string(),
  custom_command: z.boolean(),
  draining: z.boolean(),
  tags: Tags,
  /** The tenants whose deployments it runs, as far as the reader may see them. Absent from an instance of 0.1.0. */
  tenants: Tenants.optional(),
  joined_at: Timestamp,
});
export type Member = z.infer<typeof Member>;

/** `settling`: the list may be incomplete, so an absent node is not known to be lost. */
const VIEW_STATES = ["settling", "ready"] as const;
export const ViewState = z.enum(VIEW_STATES);
export type ViewState = z.infer<typeof ViewState>;

/** A node in the API. */
export const NodeView = z.object({
  node_id: NodeId,
  name: z.string(),
  version: z.string(),
  online: z.boolean(),
  draining: z.boolean(),
  node_unit: z.boolean(),
  instance_id: InstanceId.nullable(),
  boot_id: BootId,
  epoch: Epoch,
  tags: Tags,
  labels: Labels,
  pools: Pools,
  services: Services,
  capacity: Capacity,
  /** Slots in use, of `capacity`; includes `stuck`. */
  reserved: Count,
  /** Slots in use by attempts that were cancelled and still run. */
  stuck: Count.optional(),
  claim_policy: ClaimPolicyName,
  trusted_package_regexp: z.string(),
  custom_command: z.boolean(),
  /** The tenants it serves, as far as the reader may see them. */
  tenants: Tenants.optional(),
  resource_usage: ResourceUsage.nullable(),
  joined_at: Timestamp,
  left_at: Timestamp.nullable(),
  presence_expires_at: Timestamp.nullable(),
});
export type NodeView = z.infer<typeof NodeView>;

/** The mass-loss brake of the caller's tenant, or of any for an operator: while active nothing of that tenant is released. */
export const Brake = z.object({
  active: z.boolean(),
  since: Timestamp.nullable(),
  lost: Count,
  members: Count,
});
export type Brake = z.infer<typeof Brake>;

export const MembershipView = z.object({
  view: ViewState,
  /** The latest time at which the view becomes ready; null when it is. */
  settles_at: Timestamp.nullable(),
  members: z.array(Member),
  brake: Brake,
});
export type MembershipView = z.infer<typeof MembershipView>;
