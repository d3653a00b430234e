/** What a statement made of a release: refused means that its caller may not ask, and says nothing of the addresses. */
export interface Freed {
  outcome: "released" | "refused";
}

export interface ReleasesOptions<Caller, F extends Freed> {
  /** As far as this instance knows. Callers know it from here. */
  owns: (address: string) => boolean;
  run: (caller: Caller, addresses: string[]) => Promise<F>;
}

/**
 * One release at a time. When nodes are lost, all others see it and ask for the same: of nine thousand statements for a
 * thousand addresses one frees them, and Postgres was busy with the rest for forty seconds (docs/scale.md). Whoever comes
 * while one runs waits for it. If that was for all it asks for, `undefined`: somebody else saw to it.
 */
export function createReleases<Caller, F extends Freed>({ owns, run }: ReleasesOptions<Caller, F>) {
  let running: { addresses: ReadonlySet<string>; freed: Promise<F> } | undefined;

  return async function release(
    caller: Caller,
    addresses: readonly string[],
  ): Promise<F | undefined> {
    for (;;) {
      const owners = addresses.filter(owns);
      if (owners.length === 0) return undefined;
      const other = running;
      if (!other) return begin(caller, owners);
      // What fails for one, because the store is away, fails for all who wait for it: none of them tries after it.
      const { outcome } = await other.freed;
      if (outcome === "released" && owners.every((owner) => other.addresses.has(owner)))
        return undefined;
    }
  };

  function begin(caller: Caller, owners: string[]): Promise<F> {
    const freed = run(caller, owners).finally(() => {
      running = undefined;
    });
    running = { addresses: new Set(owners), freed };
    return freed;
  }
}
