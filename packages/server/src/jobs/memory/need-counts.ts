/** Counts the different needs of each tenant. */
export interface NeedCounts {
  add(tenant: string, need: string): void;
  remove(tenant: string, need: string): void;
  has(tenant: string, need: string): boolean;
  of(tenant: string): number;
}

export function createNeedCounts(): NeedCounts {
  const tenants = new Map<string, Map<string, number>>();
  return {
    add(tenant, need) {
      const counts = tenants.get(tenant) ?? new Map<string, number>();
      tenants.set(tenant, counts.set(need, (counts.get(need) ?? 0) + 1));
    },
    remove(tenant, need) {
      const counts = tenants.get(tenant);
      const left = (counts?.get(need) ?? 1) - 1;
      if (left > 0) counts?.set(need, left);
      else counts?.delete(need);
    },
    has: (tenant, need) => tenants.get(tenant)?.has(need) ?? false,
    of: (tenant) => tenants.get(tenant)?.size ?? 0,
  };
}
