import { derived, type KnownTokens } from "../access/known-tokens.ts";
import type { Principal } from "../access/principal.ts";
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
export function createJobCallers(known: Pick<KnownTokens, "all">): CallerOf {
  const namesOf = derived(known, (tokens) => {
    const names = new Map<string, Set<string>>();
    for (const { name, tenant } of tokens.filter(({ role }) => role === "session"))
      names.set(tenant, (names.get(tenant) ?? new Set()).add(name));
    return names;
  });
  return ({ principal: { name, role }, scope }) => {
    const tenant = tenantOf(scope);
    if (role === "child") return { tenant, token: name };
    const isAlone = (namesOf().get(tenant)?.size ?? 0) <= 1;
    return role === "session" && !isAlone ? { tenant, token: name } : { tenant };
  };
}
