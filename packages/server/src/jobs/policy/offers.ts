import { ANY_TENANT, DEFAULT_TENANT } from "@tenure/protocol";

/** What nodes offer, by the tenants that they serve. */
export interface Offers {
  /** The services that are offered to this tenant; `undefined` when none of the nodes serves it. */
  to(tenant: string): ReadonlySet<string> | undefined;
}

/** The fields of a node that decide what it offers. */
interface Offering {
  readonly tenants?: readonly string[] | undefined;
  readonly services: Iterable<string>;
}

const DEFAULT_ONLY: readonly string[] = [DEFAULT_TENANT];

/** Collects the offers of these nodes. One pass; what a tenant is offered is put together when it is asked for. */
export function offersOf(nodes: Iterable<Offering>): Offers {
  const byTenant = new Map<string, Set<string>>();
  for (const { tenants = DEFAULT_ONLY, services } of nodes)
    for (const tenant of tenants) {
      const offered = byTenant.get(tenant) ?? new Set<string>();
      byTenant.set(tenant, offered);
      for (const service of services) offered.add(service);
    }
  const merged = new Map<string, ReadonlySet<string>>();
  const toAll = byTenant.get(ANY_TENANT);
  return {
    to(tenant) {
      const own = byTenant.get(tenant);
      if (!own || !toAll) return own ?? toAll;
      const both = merged.get(tenant) ?? new Set([...own, ...toAll]);
      merged.set(tenant, both);
      return both;
    },
  };
}
