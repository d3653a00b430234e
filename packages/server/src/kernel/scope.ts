/**
 * What a caller may see and change. Made from the caller's token in one place (http/scope.ts) and handed to every call of
 * a domain: a store compares it in its statement with `tenure_serves` or `tenure_share`.
 */
export interface Scope {
  /** The tenants whose things it reads and writes; `*` = all. */
  readonly tenants: readonly string[];
  /** Whether it may act on what all tenants share: instances, the brake, nodes of several tenants. */
  readonly operates: boolean;
}

/** For what an instance does by itself. */
export const EVERYTHING: Scope = { tenants: ["*"], operates: true };
