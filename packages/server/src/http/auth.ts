import { timingSafeEqual } from "node:crypto";
import { ANY_TENANT, DEFAULT_TENANT, type Role } from "@tenure/protocol";
import { tokenSha256 } from "../config.ts";

/** The caller, as its token describes it; the local operator where no token is configured. */
export interface Principal {
  name: string;
  role: Role;
  tenant: string;
  /** Of a `signer` token: the signers it may open. */
  signers?: readonly string[] | undefined;
  /** The tenants that a node of this token serves. */
  tenants?: readonly string[] | undefined;
  /** Whether it may act on what all tenants share. With a single tenant every admin may. */
  operates?: boolean;
}

export interface TokenRule extends Principal {
  sha256: string;
}

export interface Authenticator {
  /** No token is configured: every caller on the loopback is the operator. */
  readonly open: boolean;
  /** `undefined` for an unknown token. */
  identify(secret: string | undefined): Principal | undefined;
  /** The principal of a token by name and hash; `undefined` when it left the settings or its secret changed. */
  configured(token: { name: string; sha256: string }): Principal | undefined;
}

/** A caller without a token, on a public route. */
export const ANONYMOUS: Principal = { name: "anonymous", role: "viewer", tenant: DEFAULT_TENANT };

const PEER: Principal = { name: "another instance", role: "peer", tenant: DEFAULT_TENANT };
const OPERATOR: Principal = {
  ...{ name: "local operator", role: "admin", tenant: DEFAULT_TENANT },
  operates: true,
};

/** Whether requests of this principal may be forwarded ones. Without tokens, instances send none to each other either. */
export const mayForward = (principal: Principal): boolean =>
  principal.role === "peer" || principal === OPERATOR;

/** Whether it may name any tenant and move things between tenants. */
export const isOfAllTenants = (principal: Principal): boolean =>
  principal.tenant === ANY_TENANT || principal === OPERATOR;

/** `peerToken` authenticates other instances. Without tokens it is not needed and opens nothing. */
export function createAuthenticator(tokens: readonly TokenRule[], peerToken = ""): Authenticator {
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
    open: tokens.length === 0,
    identify(secret) {
      if (tokens.length === 0) return OPERATOR;
      if (!secret) return undefined;
      const digest = Buffer.from(tokenSha256(secret), "hex");
      // Compares every token in constant time, so that the duration does not reveal which one matched.
      const matches = rules.filter((rule) => timingSafeEqual(rule.digest, digest));
      return matches[0]?.token;
    },
    configured: ({ name, sha256 }) =>
      known.find((token) => token.name === name && token.sha256 === sha256),
  };
}

/** The tenants named by tokens, each once; `*` and peer tokens name none. */
export function tenantsOf(
  tokens: readonly Pick<Principal, "role" | "tenant" | "tenants">[],
): string[] {
  const named = tokens
    .filter(({ role }) => role !== "peer")
    .flatMap(({ tenant, tenants = [] }) => [tenant, ...tenants]);
  return [...new Set(named)].filter((tenant) => tenant !== ANY_TENANT);
}

export function bearerOf(header: string | undefined): string | undefined {
  return /^Bearer ([^\s]+)$/i.exec(header ?? "")?.[1];
}
