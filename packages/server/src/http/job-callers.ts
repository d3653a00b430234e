import type { Principal } from "../access/principal.ts";
import type { AuthToken } from "../config.ts";
import type { Scope } from "../kernel/scope.ts";
import { tenantOf } from "./scope.ts";

/** The jobs and sessions that a caller sees. */
export interface JobCaller {
  /** `*` = all. */
  tenant: string;
  /** Only those that the token of this name submitted or opened. */
  token?: string | undefined;
}

export type CallerOf = (call: { principal: Principal; scope: Scope }) => JobCaller;

/**
 * A `session` token sees the jobs and sessions that it submitted and opened. While it is the only one of its tenant it sees
 * all of the tenant's, also jobs for which an instance of 0.1 recorded no token. Tokens of one name count as one: that is
 * how a secret is replaced.
 */
export function createJobCallers(
  tokens: readonly Pick<AuthToken, "name" | "role" | "tenant">[],
): CallerOf {
  const names = new Map<string, Set<string>>();
  for (const { name, tenant } of tokens.filter(({ role }) => role === "session"))
    names.set(tenant, (names.get(tenant) ?? new Set()).add(name));
  return ({ principal: { name, role }, scope }) => {
    const tenant = tenantOf(scope);
    const isAlone = (names.get(tenant)?.size ?? 0) <= 1;
    return role === "session" && !isAlone ? { tenant, token: name } : { tenant };
  };
}
