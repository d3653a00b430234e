import { timingSafeEqual } from "node:crypto";
import { DEFAULT_TENANT } from "@tenure/protocol";
import type { AuthToken } from "../config/tokens.ts";
import { tokenSha256 } from "../config.ts";
import type { TokenSource } from "./authenticator.ts";
import type { Principal } from "./principal.ts";

export interface ConfigTokens extends TokenSource {
  tokens(): readonly AuthToken[];
  /** Replaces the tokens: the settings were read again. */
  replace(tokens: readonly AuthToken[]): void;
}

const PEER: Principal = { name: "another instance", role: "peer", tenant: DEFAULT_TENANT };

/** The tokens of the settings. `peerToken` authenticates other instances; without tokens it is not needed and opens nothing. */
export function createConfigTokens({
  tokens: first,
  peerToken = "",
  principalOf,
}: {
  tokens: readonly AuthToken[];
  peerToken?: string | undefined;
  principalOf: (rule: AuthToken) => Principal;
}): ConfigTokens {
  let tokens = first;
  let rules = rulesOf(tokens);

  function rulesOf(given: readonly AuthToken[]) {
    const digestOf = (sha256: string) => Buffer.from(sha256, "hex");
    const sha256 = tokenSha256(peerToken);
    return [
      ...given.map((token) => ({
        digest: digestOf(token.sha256),
        principal: () => principalOf(token),
      })),
      ...(peerToken ? [{ digest: digestOf(sha256), principal: () => ({ ...PEER, sha256 }) }] : []),
    ];
  }

  function current(sha256: string): Principal | undefined {
    const digest = Buffer.from(sha256, "hex");
    // Compares every token in constant time, so that the duration does not reveal which one matched.
    const matches = rules.filter((rule) => timingSafeEqual(rule.digest, digest));
    return matches[0]?.principal();
  }

  return {
    current,
    find: async ({ sha256 }) => current(sha256),
    async configured({ name, sha256 }) {
      const token = tokens.find((one) => one.name === name && one.sha256 === sha256);
      return token && principalOf(token);
    },
    tokens: () => tokens,
    replace(given) {
      tokens = given;
      rules = rulesOf(given);
    },
  };
}
