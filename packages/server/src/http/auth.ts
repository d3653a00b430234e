import { timingSafeEqual } from "node:crypto";
import type { Role } from "@tenure/protocol";
import { tokenSha256 } from "../config.ts";

/** Whoever is asking: what the token says, or the local operator where no token is configured. */
export interface Principal {
  name: string;
  role: Role;
  tenant: string;
  /** Of a `signer` token: which signers it may open. */
  signers?: readonly string[] | undefined;
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
export const ANYBODY: Principal = { name: "anybody", role: "viewer", tenant: "default" };

const PEER: Principal = { name: "another instance", role: "peer", tenant: "default" };
const OPERATOR: Principal = { name: "local operator", role: "admin", tenant: "default" };

/** Whether a request of this principal can come from another instance. Without tokens instances show none. */
export const mayForward = (principal: Principal): boolean =>
  principal.role === "peer" || principal === OPERATOR;

/** `peerToken` is what other instances show; it opens nothing where no token is asked for anyway. */
export function createAuthenticator(tokens: readonly TokenRule[], peerToken = ""): Authenticator {
  const peers = peerToken ? [{ ...PEER, sha256: tokenSha256(peerToken) }] : [];
  const rules = [...tokens, ...peers].map((token) => ({
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
      tokens.find((token) => token.name === name && token.sha256 === sha256),
  };
}

export function bearerOf(header: string | undefined): string | undefined {
  return /^Bearer ([^\s]+)$/i.exec(header ?? "")?.[1];
}
