import type { TokenView } from "@tenure/protocol";
import * as z from "zod";
import { AuthToken, roleProblems } from "../config/tokens.ts";
import type { TokenRow } from "./token-store.ts";

/** A row of the table as an instance keeps it. */
export interface TableToken {
  id: string;
  version: number;
  hash: string;
  tenant: string;
  sha256: string;
  formerSha256: string | undefined;
  formerUntilMs: number;
  /** By the clock of Postgres. */
  endsMs: number;
  isRevoked: boolean;
  isJoin: boolean;
  used: { address: string; sha256: string } | undefined;
  /** What it grants; of a row that is not valid, the reason why it grants nothing. */
  rule: AuthToken | { problem: string };
}

// A field that does not exist would otherwise be dropped, and its limit with it.
const Rule = AuthToken.extend({ node_name: z.string().optional() }).strict();

/** A row that was written by hand can have anything in it: it is kept, and grants nothing. */
export function readTokenRow(row: TokenRow): TableToken {
  return {
    id: row.id,
    version: row.version,
    hash: row.hash,
    tenant: row.tenant,
    sha256: row.sha256,
    formerSha256: row.former_sha256 ?? undefined,
    formerUntilMs: row.former_until?.getTime() ?? 0,
    endsMs: row.expires_at?.getTime() ?? Number.POSITIVE_INFINITY,
    isRevoked: row.revoked_at !== null,
    isJoin: row.is_join,
    used:
      row.used_at === null
        ? undefined
        : { address: row.used_address ?? "", sha256: row.used_sha256 ?? "" },
    rule: ruleOf(row),
  };
}

export function ruleOf(row: {
  name: string;
  role: string;
  tenant: string;
  sha256: string;
  scopes: unknown;
  is_join: boolean;
}): TableToken["rule"] {
  const { name, role, tenant, sha256, scopes } = row;
  if (typeof scopes !== "object" || scopes === null || Array.isArray(scopes))
    return { problem: "scopes: must be an object" };
  const own = ["name", "role", "tenant", "sha256"].find((field) => Object.hasOwn(scopes, field));
  if (own !== undefined) return { problem: `scopes: ${own} is not a scope` };
  if (row.is_join && role !== "node") return { problem: "role: a join token has the role node" };
  if (role === "peer") return { problem: "role: peer is for the settings only" };
  const parsed = Rule.safeParse({ ...scopes, name, role, tenant, sha256 });
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    return { problem: `${issue?.path.join(".")}: ${issue?.message}`.slice(0, PROBLEM_LENGTH_MAX) };
  }
  const [problem] = roleProblems(parsed.data);
  if (problem !== undefined) return { problem };
  if (parsed.data.node_name !== undefined && role !== "node")
    return { problem: "only a token with role node can have node_name" };
  return parsed.data;
}

const PROBLEM_LENGTH_MAX = 200;

export function stateOf(row: TokenRow, nowMs: number): TokenView["state"] {
  if (row.revoked_at) return "revoked";
  if (row.used_at) return "used";
  if (row.expires_at && row.expires_at.getTime() <= nowMs) return "expired";
  return "problem" in ruleOf(row) ? "invalid" : "live";
}

export function viewOf(row: TokenRow, nowMs: number): TokenView {
  const { id, name, role, tenant, created_by, is_join: join } = row;
  const isObject = typeof row.scopes === "object" && row.scopes && !Array.isArray(row.scopes);
  return {
    ...{ id, name, role, tenant, join, created_by },
    scopes: isObject ? (row.scopes as Record<string, unknown>) : { invalid: row.scopes },
    state: stateOf(row, nowMs),
    created_at: row.created_at.toISOString(),
    expires_at: row.expires_at?.toISOString() ?? null,
    revoked_at: row.revoked_at?.toISOString() ?? null,
    last_used_at: row.last_used_at?.toISOString() ?? null,
    former_until: row.former_until?.toISOString() ?? null,
    used_by: row.used_address,
  };
}
