import { ANY_TENANT, DEFAULT_TENANT, normalizeSigner } from "@tenure/protocol";
import type { FastifyRequest } from "fastify";
import { derived, type KnownTokens } from "../access/known-tokens.ts";
import { isOfAllTenants, type Principal } from "../access/principal.ts";
import type { AuthToken } from "../config.ts";
import type { Scope } from "../kernel/scope.ts";
import { OPENS_HEADER, TENANT_HEADER } from "../nonces/forward.ts";
import type { Arrival } from "../nonces/nonces.ts";
import { tenantOf } from "./scope.ts";

export interface SignerWrite {
  principal: Principal;
  scope: Scope;
  request: FastifyRequest;
  params: { signer: string };
}

export type SignerAccessRules = (write: SignerWrite) => Arrival["access"];

type Token = Pick<AuthToken, "role" | "tenant">;

/**
 * Signers are within the caller's scope. A token without a list of `signers` opens new ones only while no other tenant
 * could want them: a signer belongs to the tenant that opens it first.
 */
export function createSignerAccess(known: Pick<KnownTokens, "all">): SignerAccessRules {
  const openersOf = derived(known, tenantsThatOpen);
  const isOnly = (tenant: string): boolean => openersOf().every((each) => each === tenant);

  function opensIn({ principal, scope, params: { signer } }: SignerWrite): string | undefined {
    const { role, signers } = principal;
    const tenant = tenantOf(scope);
    // A grant is never more than the rights of the admin who wrote it, who may not be able to open this signer.
    if (role === "child") return undefined;
    if (role === "signer" && signers)
      return signers.some((pattern) => coversSigner(pattern, signer)) ? tenant : undefined;
    const openers = openersOf();
    if (tenant === ANY_TENANT)
      return openers.length <= 1 ? (openers[0] ?? DEFAULT_TENANT) : undefined;
    return isOfAllTenants(principal) || isOnly(tenant) ? tenant : undefined;
  }

  return (write) =>
    write.principal.role === "peer"
      ? accessOfPeer(write.request, isOnly(DEFAULT_TENANT))
      : { tenant: tenantOf(write.scope), opensIn: opensIn(write) };
}

/**
 * Tenants whose tokens could open a signer without a list. Where no token has role signer, admins do that work.
 */
function tenantsThatOpen(tokens: readonly Token[]): string[] {
  const of = (role: Token["role"]) => tokens.filter((token) => token.role === role);
  const signers = of("signer");
  const tenants = (signers.length > 0 ? signers : of("admin")).map(({ tenant }) => tenant);
  return [...new Set(tenants)].filter((tenant) => tenant !== ANY_TENANT);
}

/**
 * The forwarding instance has checked its caller and sends the result. An instance of 0.1 sends none and has no tenants:
 * it may act for `default`.
 */
function accessOfPeer({ headers }: FastifyRequest, mayOpenInDefault: boolean): Arrival["access"] {
  const tenant = headers[TENANT_HEADER];
  const opensIn = headers[OPENS_HEADER];
  if (typeof tenant === "string")
    return { tenant, ...(typeof opensIn === "string" && { opensIn }) };
  return { tenant: DEFAULT_TENANT, ...(mayOpenInDefault && { opensIn: DEFAULT_TENANT }) };
}

/** `eip155:1:*` is the beginning of a signer; without `*` it is the whole signer. */
export function coversSigner(pattern: string, signer: string): boolean {
  return pattern.endsWith("*")
    ? signer.startsWith(pattern.slice(0, -1))
    : signer === normalizeSigner(pattern);
}
