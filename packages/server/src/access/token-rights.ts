import { ANY_TENANT, TenureError, type TokenScopes } from "@tenure/protocol";
import { isOfAllTenants, type Principal } from "./principal.ts";

export interface Granted {
  role: string;
  tenant: string;
  scopes: Pick<TokenScopes, "tenants">;
}

/**
 * Throws when a token grants what its admin does not have: an admin of one tenant creates, rotates and revokes tokens of this
 * tenant only. Opening signers concerns all tenants, because a signer belongs to the tenant that opens it first, and the
 * tenants of `signer` tokens decide who may: with several tenants that takes a token of all tenants.
 */
export function requireRights(principal: Principal, { role, tenant, scopes }: Granted): void {
  if (isOfAllTenants(principal)) return;
  const own = principal.tenant;
  const tenants = Array.isArray(scopes.tenants) ? scopes.tenants : [];
  const foreign = [tenant, ...tenants].find((one) => one !== own);
  if (foreign !== undefined)
    throw forbidden(
      foreign === ANY_TENANT
        ? 'tenant "*" needs an admin token with tenant = "*"'
        : `this token has the tenant ${own} only, and cannot give rights in ${JSON.stringify(foreign)}`,
    );
  if (role === "signer" && principal.operates !== true)
    throw forbidden(
      'with several tenants, tokens of role signer need an admin token with tenant = "*": signers belong to the tenant that opens them first',
    );
}

const forbidden = (reason: string): TenureError => new TenureError("FORBIDDEN", { reason });
