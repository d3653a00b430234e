import { ANY_TENANT, normalizeSigner, TenureError } from "@tenure/protocol";
import type { FastifyRequest } from "fastify";
import type { AuthToken } from "../config.ts";
import type { Principal } from "./auth.ts";

/** Which signers a request is about: see `SignerAccess` of the nonces. */
export interface SignerScope {
  tenant: string;
  opensIn?: string | undefined;
}

export interface SignerAccessRules {
  /** What a write may do. `asked` is `?tenant=`. */
  ofWrite(call: SignerWrite): SignerScope;
  /** Whose signers a read sees. */
  ofRead(principal: Principal, asked?: string): string;
  /** From which tenant a signer may be moved to `to`. */
  ofMove(principal: Principal, to: string): string;
}

export interface SignerWrite {
  principal: Principal;
  signer: string;
  request: FastifyRequest;
  asked?: string | undefined;
}

type Token = Pick<AuthToken, "role" | "tenant">;

/**
 * Signers are within the tenant of a token. A token without a list of `signers` opens new ones only while no other
 * tenant could want them: a signer belongs to the tenant that opens it first.
 */
export function createSignerAccess(tokens: readonly Token[]): SignerAccessRules {
  const openers = tenantsThatOpen(tokens);
  const isOnly = (tenant: string): boolean => openers.every((each) => each === tenant);
  // Without tokens the one caller there is, is the operator of all tenants.
  const seesAll = ({ tenant }: Principal): boolean => tenant === ANY_TENANT || tokens.length === 0;

  function opensIn({ principal, signer, asked }: SignerWrite): string | undefined {
    const { role, tenant, signers } = principal;
    if (role === "signer" && signers)
      return signers.some((pattern) => matches(pattern, signer)) ? tenant : undefined;
    if (tenant !== ANY_TENANT) return isOnly(tenant) ? tenant : undefined;
    return asked ?? (openers.length <= 1 ? (openers[0] ?? "default") : undefined);
  }

  function ofRead(principal: Principal, asked?: string): string {
    if (seesAll(principal)) return asked ?? ANY_TENANT;
    if (asked !== undefined && asked !== principal.tenant)
      throw forbidden(`this token is of tenant ${principal.tenant}, not of ${asked}`);
    return principal.tenant;
  }

  return {
    ofRead,
    ofWrite(call) {
      if (call.principal.role === "peer") return scopeOfPeer(call.request, isOnly("default"));
      return { tenant: ofRead(call.principal, call.asked), opensIn: opensIn(call) };
    },
    ofMove(principal, to) {
      if (seesAll(principal)) return ANY_TENANT;
      if (to === principal.tenant) return to;
      throw forbidden("moving a signer to another tenant takes an admin token with tenant *");
    },
  };
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
 * The other instance judged its caller and names the outcome. One of 0.1 names none, and knows no tenants: it may do
 * what concerns `default`.
 */
function scopeOfPeer({ headers }: FastifyRequest, mayOpenInDefault: boolean): SignerScope {
  const tenant = headers["x-tenure-tenant"];
  const opensIn = headers["x-tenure-opens-in"];
  if (typeof tenant === "string")
    return { tenant, ...(typeof opensIn === "string" && { opensIn }) };
  return { tenant: "default", ...(mayOpenInDefault && { opensIn: "default" }) };
}

/** `eip155:1:*` is the beginning of a signer; without `*` it is the whole signer. */
function matches(pattern: string, signer: string): boolean {
  return pattern.endsWith("*")
    ? signer.startsWith(pattern.slice(0, -1))
    : signer === normalizeSigner(pattern);
}

const forbidden = (reason: string): TenureError => new TenureError("FORBIDDEN", { reason });
