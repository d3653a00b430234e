import * as z from "zod";
import { ClientId, Labels, NodeAddress, Pool, Role, Tenant, Timestamp, Uuid } from "../formats.ts";
import { ANY_TENANT } from "../tenants.ts";

export const TokenId = Uuid;
export type TokenId = z.infer<typeof TokenId>;

/** How the secrets of the table begin, so that scanners find one that was published. */
export const TOKEN_PREFIX = "tnr_";
export const JOIN_TOKEN_PREFIX = "tnrj_";
const SECRET = /^[A-Za-z0-9_-]{43}$/;

/** Whether the text has the form of a secret that `tenure token create` prints or an agent makes: 256 random bits. */
export const isTokenSecret = (text: string): boolean =>
  text.startsWith(TOKEN_PREFIX) && SECRET.test(text.slice(TOKEN_PREFIX.length));
export const isJoinSecret = (text: string): boolean =>
  text.startsWith(JOIN_TOKEN_PREFIX) && SECRET.test(text.slice(JOIN_TOKEN_PREFIX.length));

const DAY_SECONDS = 86_400;
export const TOKEN_SECONDS_MAX = 3_650 * DAY_SECONDS;
export const JOIN_SECONDS_MAX = DAY_SECONDS;
export const JOIN_SECONDS_DEFAULT = 600;
export const GRACE_SECONDS_MAX = 7 * DAY_SECONDS;

const LIST_MAX = 256;
const listOf = <T extends z.ZodType>(entry: T) => z.array(entry).max(LIST_MAX).optional();
const limit = z.int().min(1).max(1_000_000).optional();
const AnyTenant = z.literal(ANY_TENANT);

/** What a token is limited to; an absent field is no limit. A field that does not exist is refused, not dropped. */
export const TokenScopes = z.strictObject({
  /** Of a `signer` token: signers that it may open, `eip155:1:*`. */
  signers: listOf(z.string().min(1).max(129)),
  // Of a `node` token.
  pools: listOf(Pool),
  addresses: listOf(NodeAddress),
  tenants: listOf(z.union([Tenant, AnyTenant])),
  labels: Labels.optional(),
  node_unit: z.boolean().optional(),
  capacity_max: limit,
  nodes_max: limit,
  /** The name that its node must have. */
  node_name: ClientId.optional(),
});
export type TokenScopes = z.infer<typeof TokenScopes>;

/** `role` peer is for the settings only. */
export const TokenRole = Role.exclude(["peer", "child"]);

export const TokenCreate = z.object({
  name: ClientId,
  role: TokenRole,
  tenant: z.union([Tenant, AnyTenant]).optional(),
  scopes: TokenScopes.optional(),
  /** Absent = it does not expire; a join token then expires after ten minutes. */
  expires_in_seconds: z.int().min(1).max(TOKEN_SECONDS_MAX).optional(),
  /** A join token: it enrols one node, and nothing else. */
  join: z.boolean().optional(),
});
export type TokenCreate = z.infer<typeof TokenCreate>;

export const TokenRotate = z.object({
  /** How long the former secret stays valid. */
  grace_seconds: z.int().min(0).max(GRACE_SECONDS_MAX).optional(),
  /** A new end, from now. Absent = the end stays as it is. */
  expires_in_seconds: z.int().min(1).max(TOKEN_SECONDS_MAX).optional(),
});
export type TokenRotate = z.infer<typeof TokenRotate>;

export const TOKEN_STATES = ["live", "expired", "revoked", "used", "invalid"] as const;

export const TokenView = z.object({
  id: TokenId,
  name: z.string(),
  role: z.string(),
  tenant: z.string(),
  /** As the row has them: of an `invalid` row it may be any JSON. */
  scopes: z.record(z.string(), z.unknown()),
  join: z.boolean(),
  /** `used`: a join token that enrolled its node. `invalid`: a row that was written by hand and grants nothing. */
  state: z.enum(TOKEN_STATES),
  created_at: Timestamp,
  created_by: z.string(),
  expires_at: Timestamp.nullable(),
  revoked_at: Timestamp.nullable(),
  /** At most a minute old while it is in use. */
  last_used_at: Timestamp.nullable(),
  /** Until when the former secret is valid. */
  former_until: Timestamp.nullable(),
  /** The node that a join token enrolled. */
  used_by: z.string().nullable(),
});
export type TokenView = z.infer<typeof TokenView>;

/** The secret is in this answer only. */
export const TokenCreated = TokenView.extend({ secret: z.string() });
export type TokenCreated = z.infer<typeof TokenCreated>;

const Sha256 = z.string().regex(/^[0-9a-f]{64}$/, "must be a SHA-256 in hex");

export const NodeEnrol = z.object({
  join_token: z.string().min(1).max(256),
  address: NodeAddress,
  /** The name of the node, when its settings have one. */
  name: ClientId.optional(),
  /** The SHA-256 of the secret that the node made and keeps. */
  token_sha256: Sha256,
  /** The node's signature of `enrolText`, in base64. */
  signature: z.string().min(1).max(256),
});
export type NodeEnrol = z.infer<typeof NodeEnrol>;

export const NodeEnrolled = z.object({
  token_id: TokenId,
  tenant: z.string(),
  labels: Labels.optional(),
  /** The name that the join token gives the node. */
  node_name: z.string().optional(),
});
export type NodeEnrolled = z.infer<typeof NodeEnrolled>;

/** What a node signs to enrol: it has the key of the address, and means this join token and this secret. */
export const enrolText = (parts: {
  join_sha256: string;
  address: string;
  token_sha256: string;
}): string => `tenure-enrol-v1:${parts.join_sha256}:${parts.address}:${parts.token_sha256}`;
