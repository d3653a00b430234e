import {
  ANY_TENANT,
  enrolText,
  isJoinSecret,
  type NodeEnrol,
  type NodeEnrolled,
  TenureError,
  type TokenScopes,
} from "@tenure/protocol";
import { type Act, recorded } from "../audit/actor.ts";
import { tokenSha256 } from "../config.ts";
import { uuid7 } from "../kernel/random.ts";
import { isSignedBy } from "./signature.ts";
import type { TokenAdminOptions } from "./token-admin.ts";
import { ruleOf, type TableToken } from "./token-codec.ts";
import { enrol, findToken, findTokenBySha256 } from "./token-store.ts";

export type NodeEnrolment = ReturnType<typeof createNodeEnrolment>;

/** Enrols nodes: a join token is used up once, and its node gets a token of its own. */
export function createNodeEnrolment({ db, clock, random, tokens }: TokenAdminOptions) {
  const newId = () => uuid7(random, clock.wallMs());

  return {
    /** Finds the join token that a node presents. Throws for one that is unknown or over. */
    async joinTokenOf(given: NodeEnrol): Promise<TableToken> {
      const joinSha256 = tokenSha256(given.join_token);
      const found = isJoinSecret(given.join_token) ? await tokens.lookUp(joinSha256) : undefined;
      if (!found?.isJoin || found.isRevoked || "problem" in found.rule)
        throw new TenureError("UNAUTHENTICATED", { reason: "unknown join token" });
      if (!found.used && tokens.nowMs() >= found.endsMs)
        throw new TenureError("UNAUTHENTICATED", { reason: "the join token has expired" });
      return found;
    },
    async enrol(join: TableToken, given: NodeEnrol, act: Act): Promise<NodeEnrolled> {
      const { address, token_sha256: sha256 } = given;
      const text = enrolText({ join_sha256: join.sha256, address, token_sha256: sha256 });
      if (!isSignedBy(address, text, Buffer.from(given.signature, "base64")))
        throw new TenureError("UNAUTHENTICATED", {
          reason: "the signature does not match the address",
        });
      const { name, scopes } = grantOf(join, given);
      const enrolment = { joinId: join.id, id: newId(), name, scopes, address, sha256 };
      if (!join.used) {
        const row = await recorded(db, act, {
          write: (tx) => enrol(tx, enrolment),
          subjectOf: (done) => done && `${done.name} ${done.id}`,
        });
        if (row) {
          tokens.written(row);
          return enrolledOf(row.id, row.tenant, scopes);
        }
      }
      return repeated(join, given);
    },
  };

  /** The same node asks again because no answer arrived: its token exists. Any other gets the refusal. */
  async function repeated({ id }: TableToken, { address, token_sha256 }: NodeEnrol) {
    const join = await findToken(db, id, ANY_TENANT);
    if (!join?.used_at)
      throw new TenureError("UNAUTHENTICATED", { reason: "the join token has expired" });
    const own = await findTokenBySha256(db, token_sha256);
    if (join.used_address !== address || join.used_sha256 !== token_sha256 || !own)
      throw new TenureError("JOIN_TOKEN_USED", { address: join.used_address ?? "" });
    const rule = ruleOf(own);
    if (own.revoked_at || "problem" in rule)
      throw new TenureError("UNAUTHENTICATED", { reason: "the token of this node was revoked" });
    return enrolledOf(own.id, own.tenant, rule);
  }
}

/** What the node's own token grants: the rights of the join token, for this address only. */
function grantOf(join: TableToken, given: NodeEnrol): { name: string; scopes: TokenScopes } {
  if ("problem" in join.rule) throw new Error("a join token that is not valid");
  const { name, role: _, tenant: __, sha256: ___, ...scopes } = join.rule;
  const { node_name } = scopes as TokenScopes;
  if (node_name !== undefined && given.name !== undefined && given.name !== node_name)
    throw new TenureError("FORBIDDEN", {
      reason: `this join token is for the node ${node_name}, not ${given.name}`,
    });
  if (scopes.addresses && !scopes.addresses.includes(given.address))
    throw new TenureError("FORBIDDEN", { reason: "this join token is for another address" });
  return {
    name: node_name ?? given.name ?? name,
    scopes: { ...scopes, addresses: [given.address] },
  };
}

function enrolledOf(
  token_id: string,
  tenant: string,
  { labels, node_name }: Pick<TokenScopes, "labels" | "node_name">,
): NodeEnrolled {
  return {
    ...{ token_id, tenant },
    ...(labels && { labels }),
    ...(node_name !== undefined && { node_name }),
  };
}
