import { ANY_TENANT, Tenant, TenureError } from "@tenure/protocol";
import { isOfAllTenants, type Principal } from "../access/principal.ts";
import type { Scope } from "../kernel/scope.ts";

/**
 * The caller's scope: its own tenant; with a token of tenant `*` all, or the one in `?tenant=`; with a token of role `node`
 * the tenants it serves; all for another instance, which has checked its own caller.
 */
export function scopeOf(principal: Principal, query: unknown): Scope {
  const own = tenantsOfCaller(principal);
  const { operates = false } = principal;
  const asked = askedTenant(query);
  if (asked === undefined || (own.length === 1 && asked === own[0]))
    return { tenants: own, operates };
  const named = Tenant.safeParse(asked);
  if (!named.success) throw new TenureError("INVALID_REQUEST", { reason: "tenant: invalid" });
  if (!own.includes(ANY_TENANT) && !isOfAllTenants(principal)) {
    const reason = `this token sees the tenant ${own.join(", ")} only`;
    throw new TenureError("FORBIDDEN", { reason });
  }
  // The same as for an admin of that tenant.
  return { tenants: [named.data], operates: false };
}

const askedTenant = (query: unknown): unknown =>
  (query as { tenant?: unknown } | undefined)?.tenant;

function tenantsOfCaller({ role, tenant, tenants }: Principal): readonly string[] {
  if (role === "peer") return [ANY_TENANT];
  return role === "node" ? (tenants ?? [tenant]) : [tenant];
}

/** The one tenant of a caller of a role that has one, or `*`. */
export const tenantOf = ({ tenants: [tenant = ANY_TENANT] }: Scope): string => tenant;

/** The tenant of a new object: the caller's own, or the one that a caller of all tenants names. */
export function tenantToWrite(scope: Scope, named?: string | undefined): string {
  const own = tenantOf(scope);
  if (own === ANY_TENANT) {
    if (named !== undefined) return named;
    const reason = 'tenant: required, because this token has tenant = "*"';
    throw new TenureError("INVALID_REQUEST", { reason });
  }
  if (named === undefined || named === own) return own;
  throw new TenureError("FORBIDDEN", { reason: `this token writes to the tenant ${own} only` });
}

/** The tenant that an object may be moved from: any for a caller of all tenants that names none, also without tokens. */
export function tenantToMoveFrom(principal: Principal, scope: Scope, query: unknown): string {
  const isNamed = askedTenant(query) !== undefined;
  return isOfAllTenants(principal) && !isNamed ? ANY_TENANT : tenantOf(scope);
}

/** Throws for a caller that may not act on what all tenants share. */
export function requireOperator({ operates }: Scope): void {
  if (operates) return;
  const reason =
    'this concerns all tenants of the fleet, so it needs an admin token with tenant = "*"';
  throw new TenureError("FORBIDDEN", { reason });
}

/** Throws for a caller of one tenant: it could not undo the move to another. */
export function requireAllTenants(principal: Principal, what: string): void {
  if (isOfAllTenants(principal)) return;
  const reason = `moving a ${what} to another tenant takes an admin token with tenant = "*"`;
  throw new TenureError("FORBIDDEN", { reason });
}
