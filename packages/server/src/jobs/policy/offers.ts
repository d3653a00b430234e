import { ANY_TENANT, DEFAULT_TENANT } from "@tenure/protocol";

/** The services that nodes offer, by tenant. */
export interface Offers {
  /** The services offered to this tenant; `undefined` if none of the nodes serves it. */
  to(tenant: string): ReadonlySet<string> | undefined;
}

/** The fields of a node that decide its offer. */
interface Offering {
  readonly tenants?: readonly string[] | undefined;
  readonly services: Iterable<string>;
}

const DEFAULT_ONLY: readonly string[] = [DEFAULT_TENANT];

/** Collects the offers of these nodes in one pass; the union for one tenant is computed on demand. */
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
