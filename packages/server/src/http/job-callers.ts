import type { AuthToken } from "../config.ts";
import type { Scope } from "../kernel/scope.ts";
import type { Principal } from "./auth.ts";
import { tenantOf } from "./scope.ts";

/** Whose jobs and sessions a caller sees. */
export interface JobCaller {
  /** `*` = all. */
  tenant: string;
  /** Only what the token of this name submitted or opened. */
  token?: string | undefined;
}

export type CallerOf = (call: { principal: Principal; scope: Scope }) => JobCaller;

/**
 * A `session` token sees what it submitted and opened itself, as soon as its tenant has another one. While it is the
 * only one it sees all of its tenant, also what an instance of 0.1 took in and recorded no token for. Tokens of one name
 * count as one: that is how a secret is replaced.
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
