/** Refused: the caller may not release, whatever the state of the addresses. */
export interface Freed {
  outcome: "released" | "refused";
}

export interface ReleaseFlightOptions<Caller, F extends Freed> {
  /** Whether the node owns a deployment, by this instance's cache. */
  owns: (address: string) => boolean;
  run: (caller: Caller, addresses: string[]) => Promise<F>;
}

/**
 * Single-flight for releases. When nodes are lost, all others request the same release: without this, 9,000 statements for
 * 1,000 addresses kept Postgres busy for 40 s (docs/scale.md). A caller waits for the release that runs. When that one
 * covered all its addresses, it resolves to undefined; otherwise the caller runs its own.
 */
export function createReleaseFlight<Caller, F extends Freed>({
  owns,
  run,
}: ReleaseFlightOptions<Caller, F>) {
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
      // A failure is thrown to all waiting callers: while the store is down, none of them should retry here.
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
