import { createHash } from "node:crypto";
import { ROLES } from "@tenure/protocol";
import * as z from "zod";
import { boundedInt, choice, id, listOf, ruledText, sha256Hex } from "./kinds.ts";

/** Who may call, and as what. Only the SHA-256 of a secret is kept, so no dump of it opens anything. */
export const AuthToken = z.object(
  {
    name: ruledText(id),
    role: choice(ROLES),
    tenant: ruledText(id).default("default"),
    sha256: ruledText(sha256Hex).transform((hex) => hex.toLowerCase()),
    // What a `node` token is limited to. Absent = no limit.
    addresses: listOf(ruledText(id)).optional(),
    pools: listOf(ruledText(id)).optional(),
    node_unit: z.boolean("must be true or false").optional(),
    capacity_max: boundedInt({ min: 1, max: 1_000_000 }).optional(),
  },
  "must be a table with name, role and sha256 (in TENURE_TOKENS: role:SECRET)",
);
export type AuthToken = z.infer<typeof AuthToken>;

export const NODE_ONLY_FIELDS = ["addresses", "pools", "node_unit", "capacity_max"] as const;

/** How a secret becomes what is stored and compared. */
export function tokenSha256(secret: string): string {
  return createHash("sha256").update(secret, "utf8").digest("hex");
}

/**
 * The entries of `TENURE_TOKENS="admin:SECRET,node:SECRET"`, hashed before anything else can see them. A secret may
 * hold a colon, not a comma. An entry of another shape becomes `undefined`, which the schema refuses without a look.
 */
export function parseTokenList(list: string): (object | undefined)[] {
  const entries = list.split(",").map((entry) => entry.trim());
  return entries.filter((entry) => entry !== "").map(parseTokenEntry);
}

function parseTokenEntry(entry: string, index: number): object | undefined {
  const [, role, secret] = /^([^:]+):(.+)$/s.exec(entry) ?? [];
  if (role === undefined || secret === undefined) return undefined;
  return { name: `TENURE_TOKENS:${index + 1}`, role, sha256: tokenSha256(secret) };
}
