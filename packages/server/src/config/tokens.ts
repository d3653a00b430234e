import { createHash } from "node:crypto";
import {
  ANY_TENANT,
  areTraitsSmall,
  Labels,
  NODE_UNIT_TAG,
  ROLES,
  TOKEN_LABEL_PREFIX,
  TRAITS_BYTES_MAX,
  TRAITS_MAX,
} from "@tenure/protocol";
import * as z from "zod";
import {
  boundedInt,
  choice,
  ID,
  id,
  listOf,
  ruledText,
  sha256Hex,
  type TextRule,
} from "./kinds.ts";

const idOrAny: TextRule = {
  accepts: (value) => value === ANY_TENANT || ID.test(value),
  must: `${id.must}, or *`,
};

const signerPattern: TextRule = {
  accepts: (value) => /^[A-Za-z0-9._:@/-]{0,128}\*?$/.test(value) && value !== "",
  must: "must be a signer such as eip155:1:0x…, or the beginning of one and a *",
};

const labelName: TextRule = {
  accepts: (value) => Labels.safeParse({ [TOKEN_LABEL_PREFIX + value]: "" }).success,
  must: "must be 1 to 122 of the characters A-Z a-z 0-9 . _ : @ / -",
};

const labelValue: TextRule = {
  accepts: (value) => value !== "" && Labels.safeParse({ label: value }).success,
  must: "must be a text of 1 to 256 characters",
};

const LABELS_TOO_LARGE = `must be fewer than ${TRAITS_MAX}, and with the node's own less than ${TRAITS_BYTES_MAX} bytes`;

function leavesRoomForTags(labels: Record<string, string>): boolean {
  const entries = Object.entries(labels);
  const named = entries.map(([name, value]) => [TOKEN_LABEL_PREFIX + name, value] as const);
  return areTraitsSmall({ labels: Object.fromEntries(named), tags: { [NODE_UNIT_TAG]: true } });
}

/** Who may call, and as what. Only the SHA-256 of a secret is kept, so no dump of it opens anything. */
export const AuthToken = z.object(
  {
    name: ruledText(id),
    role: choice(ROLES),
    /** `*` = every tenant, for admin and viewer. */
    tenant: ruledText(idOrAny).default("default"),
    sha256: ruledText(sha256Hex).transform((hex) => hex.toLowerCase()),
    // What a `node` token is limited to. Absent = no limit.
    addresses: listOf(ruledText(id)).optional(),
    pools: listOf(ruledText(id)).optional(),
    node_unit: z.boolean("must be true or false").optional(),
    capacity_max: boundedInt({ min: 1, max: 1_000_000 }).optional(),
    /** Whose jobs and deployments its nodes may run. Absent = those of its own tenant. */
    tenants: listOf(ruledText(idOrAny)).optional(),
    /** Set on its nodes by the server, under `token/`. */
    labels: z
      .record(ruledText(labelName), ruledText(labelValue), "must be a table")
      .refine(leavesRoomForTags, LABELS_TOO_LARGE)
      .optional(),
    nodes_max: boundedInt({ min: 1, max: 1_000_000 }).optional(),
    /** Which signers a `signer` token may open: `eip155:1:*`. */
    signers: listOf(ruledText(signerPattern)).optional(),
  },
  "must be a table with name, role and sha256 (in TENURE_TOKENS: role:SECRET)",
);
export type AuthToken = z.infer<typeof AuthToken>;

export const NODE_ONLY_FIELDS = [
  "addresses",
  "pools",
  "node_unit",
  "capacity_max",
  "tenants",
  "labels",
  "nodes_max",
] as const satisfies (keyof AuthToken)[];

/** What a token of this role cannot have. */
export function roleProblems(token: AuthToken): string[] {
  const { role, tenant, signers } = token;
  const limits = NODE_ONLY_FIELDS.filter((field) => token[field] !== undefined);
  return [
    ...(limits.length > 0 && role !== "node"
      ? [`only a token with role node can have ${limits.join(", ")}`]
      : []),
    ...(signers && role !== "signer" ? ["only a token with role signer can have signers"] : []),
    ...(tenant === ANY_TENANT && role !== "admin" && role !== "viewer"
      ? ["only a token with role admin or viewer can have the tenant *"]
      : []),
  ];
}

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

/** What of `TENURE_TOKENS` is easy to guess. Of a sha256 in the file the length cannot be known. */
export function shortSecretProblems(list: string): string[] {
  const entries = list.split(",").filter((entry) => entry.trim() !== "");
  return entries.flatMap((entry, index) => {
    const secret = entry.trim().slice(entry.trim().indexOf(":") + 1);
    if (!entry.includes(":") || [...secret].length >= SECRET_LENGTH_MIN) return [];
    return `TENURE_TOKENS: entry ${index + 1}: the secret must have at least ${SECRET_LENGTH_MIN} characters; make one with: openssl rand -hex 16`;
  });
}

const SECRET_LENGTH_MIN = 16;

function parseTokenEntry(entry: string, index: number): object | undefined {
  const [, role, secret] = /^([^:]+):(.+)$/s.exec(entry) ?? [];
  if (role === undefined || secret === undefined) return undefined;
  return { name: `TENURE_TOKENS:${index + 1}`, role, sha256: tokenSha256(secret) };
}
