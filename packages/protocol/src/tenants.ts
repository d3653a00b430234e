/** The tenant of everything that names none. */
export const DEFAULT_TENANT = "default";

/** In place of a tenant: all of them. */
export const ANY_TENANT = "*";

/**
 * Whether a node that serves these tenants may run what belongs to this one. A node of release 0.1.0 names none, and
 * serves the tenant `default`.
 */
export function serves(tenants: readonly string[] | undefined, tenant: string): boolean {
  if (!tenants) return tenant === DEFAULT_TENANT;
  return tenants.includes(tenant) || tenants.includes(ANY_TENANT);
}

/** Whether nodes that serve these tenants have one in common. */
export function sharesTenant(
  tenants: readonly string[] | undefined = [DEFAULT_TENANT],
  others: readonly string[] | undefined = [DEFAULT_TENANT],
): boolean {
  if (tenants.includes(ANY_TENANT) || others.includes(ANY_TENANT)) return true;
  return tenants.some((tenant) => others.includes(tenant));
}
