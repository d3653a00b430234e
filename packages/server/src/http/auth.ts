import { timingSafeEqual } from "node:crypto";
import { ANY_TENANT, DEFAULT_TENANT, type Role } from "@tenure/protocol";
import { tokenSha256 } from "../config.ts";

/** Whoever is asking: what the token says, or the local operator where no token is configured. */
export interface Principal {
  name: string;
  role: Role;
  tenant: string;
  /** Of a `signer` token: which signers it may open. */
  signers?: readonly string[] | undefined;
  /** Whom a node of this token serves. */
  tenants?: readonly string[] | undefined;
  /** Whether it may act on what all tenants share. Where there is one tenant, everything is its own. */
  operates?: boolean;
}

export interface TokenRule extends Principal {
  sha256: string;
}

export interface Authenticator {
  /** Without any token configured everybody on the loopback is the operator. */
  readonly open: boolean;
  /** `undefined`: no such token. */
  identify(secret: string | undefined): Principal | undefined;
  /** The principal of a token by its name and hash. `undefined`: it is gone from the settings, or has another secret. */
  configured(token: { name: string; sha256: string }): Principal | undefined;
}

/** Who asks without a token, where none is needed. */
export const ANYBODY: Principal = { name: "anybody", role: "viewer", tenant: DEFAULT_TENANT };

const PEER: Principal = { name: "another instance", role: "peer", tenant: DEFAULT_TENANT };
const OPERATOR: Principal = {
  ...{ name: "local operator", role: "admin", tenant: DEFAULT_TENANT },
  operates: true,
};

/** Whether a request of this principal can come from another instance. Without tokens instances show none. */
export const mayForward = (principal: Principal): boolean =>
  principal.role === "peer" || principal === OPERATOR;

/** Whether it may name any tenant, and move things between them. Without tokens the one caller there is may. */
export const isOfAllTenants = (principal: Principal): boolean =>
  principal.tenant === ANY_TENANT || principal === OPERATOR;

/** `peerToken` is what other instances show; it opens nothing where no token is asked for anyway. */
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
      // Every rule is compared, in constant time each: how long it takes tells nothing about which matched.
      const matches = rules.filter((rule) => timingSafeEqual(rule.digest, digest));
      return matches[0]?.token;
    },
    configured: ({ name, sha256 }) =>
      known.find((token) => token.name === name && token.sha256 === sha256),
  };
}

/** The tenants that tokens name, each once. Instances are of none. */
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
