import { timingSafeEqual } from "node:crypto";
import { ANY_TENANT, DEFAULT_TENANT } from "@tenure/protocol";
import { tokenSha256 } from "../config.ts";
import type { TokenSource } from "./authenticator.ts";
import { type Principal, tenantsOf } from "./principal.ts";

export interface TokenRule extends Principal {
  sha256: string;
}

const PEER: Principal = { name: "another instance", role: "peer", tenant: DEFAULT_TENANT };

/** The tokens of the settings. `peerToken` authenticates other instances; without tokens it is not needed and opens nothing. */
export function createConfigTokens(tokens: readonly TokenRule[], peerToken = ""): TokenSource {
  const peers = peerToken ? [{ ...PEER, sha256: tokenSha256(peerToken) }] : [];
  const isShared = tenantsOf(tokens).length > 1;
  const known = tokens.map((token) => ({
    ...token,
    operates: !isShared || token.tenant === ANY_TENANT,
  }));
  const rules = [...known, ...peers].map((token) => ({
    token,
    digest: Buffer.from(token.sha256, "hex"),
  }));
  return {
    async find({ sha256 }) {
      const digest = Buffer.from(sha256, "hex");
      // Compares every token in constant time, so that the duration does not reveal which one matched.
      const matches = rules.filter((rule) => timingSafeEqual(rule.digest, digest));
      return matches[0]?.token;
    },
    configured: async ({ name, sha256 }) =>
      known.find((token) => token.name === name && token.sha256 === sha256),
  };
}
