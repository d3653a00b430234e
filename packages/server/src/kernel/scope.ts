/**
 * The tenants a caller may read and write. Made from the caller's token in http/scope.ts and passed to every call of a domain:
 * a store compares it in its statement with `tenure_serves` or `tenure_share`.
 */
export interface Scope {
  /** `*` = all tenants. */
  readonly tenants: readonly string[];
  /** Whether the caller may act on what all tenants share: instances, the brake, nodes of several tenants. */
  readonly operates: boolean;
}

/** The scope of work that an instance starts itself. */
export const EVERYTHING: Scope = { tenants: ["*"], operates: true };

/** A token in counts and limits. Its name alone is not unique: tokens of two tenants may have the same. */
export const tokenKey = ({ tenant, name = "" }: { tenant: string; name?: string | undefined }) =>
  `${tenant} ${name}`;
