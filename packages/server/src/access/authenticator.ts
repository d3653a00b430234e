import { tokenSha256 } from "../config.ts";
import { OPERATOR, type Principal } from "./principal.ts";

/** A secret that a caller presented. The hash is computed once for all sources. */
export interface PresentedSecret {
  secret: string;
  sha256: string;
}

/** A token by name and hash, as the row of a console session has it. */
export interface TokenRef {
  name: string;
  sha256: string;
}

/**
 * One kind of tokens: those of the settings, those of a table. A secret that has not the form of its tokens costs it no
 * statement.
 */
export interface TokenSource {
  /** Whether the secret has the form of its tokens, which are then looked for also where no token is configured. */
  claims?(secret: string): boolean;
  /**
   * The principal of a secret; `undefined` when this source has no such token. Rejects with `DEPENDENCY_DOWN` when it cannot
   * know: the caller is then not refused as unknown.
   */
  find(presented: PresentedSecret): Promise<Principal | undefined>;
  /**
   * The principal that a console session of this token has now; `undefined` when the token is gone or its secret changed.
   * A source whose tokens do not sign in leaves it out.
   */
  configured?(token: TokenRef): Promise<Principal | undefined>;
  /** What a token grants now, from memory: decides whether open sockets stay open. Left out = its tokens are not watched. */
  current?(sha256: string): Principal | undefined;
}

export interface AuthenticatorOptions {
  /** No token is configured: every caller on the loopback is the operator, unless it presents a token of the table. */
  open: boolean;
  /** Searched in this order; the first one that knows the secret decides. */
  sources: readonly TokenSource[];
}

export interface Authenticator {
  /** No token is configured: every caller on the loopback is the operator. */
  readonly open: boolean;
  /** `undefined` for an unknown token. Rejects with `DEPENDENCY_DOWN` when a source cannot know. */
  identify(secret: string | undefined): Promise<Principal | undefined>;
  /** The principal of a token by name and hash; `undefined` when it is gone or its secret changed. */
  configured(token: TokenRef): Promise<Principal | undefined>;
  /** What a token grants now, from memory. */
  current(sha256: string): Principal | undefined;
}

/** The one place where a presented secret becomes a principal. */
export function createAuthenticator({ open, sources }: AuthenticatorOptions): Authenticator {
  return {
    open,
    async identify(secret) {
      const isClaimed = secret && sources.some((source) => source.claims?.(secret));
      if (open && !isClaimed) return OPERATOR;
      if (!secret) return undefined;
      const presented = { secret, sha256: tokenSha256(secret) };
      return firstOf(sources, (source) => source.find(presented));
    },
    current: (sha256) => first(sources.map((source) => source.current?.(sha256))),
    configured: (token) => firstOf(sources, async (source) => source.configured?.(token)),
  };
}

const first = <T>(values: (T | undefined)[]): T | undefined =>
  values.find((value) => value !== undefined);

async function firstOf(
  sources: readonly TokenSource[],
  find: (source: TokenSource) => Promise<Principal | undefined>,
): Promise<Principal | undefined> {
  for (const source of sources) {
    const found = await find(source);
    if (found) return found;
  }
  return undefined;
}
