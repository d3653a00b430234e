/** A semaphore for installs and starts. */
export interface Slots {
  /** Rejects when the signal aborts before a slot is free. */
  take(kind: SlotKind, signal: AbortSignal): Promise<Slot>;
}

export type SlotKind = "install" | "start";

export interface Slot {
  /** Turns a slot for an install into one for the start that follows. */
  convertTo(kind: "start"): void;
  /** May be called twice. */
  release(): void;
}

/**
 * Allows `max` installs and starts at once, in order of arrival. Installs leave one slot free for starts, because a registry
 * that does not answer blocks installs for minutes.
 */
export function createSlots(max: number): Slots {
  const limits: Record<SlotKind, number> = { install: Math.max(1, max - 1), start: max };
  const taken: Record<SlotKind, number> = { install: 0, start: 0 };
  const waiting = new Set<{ kind: SlotKind; begin: (slot: Slot) => void }>();

  const isFree = (kind: SlotKind): boolean =>
    taken.install + taken.start < max && taken[kind] < limits[kind];

  function beginNext(): void {
    for (const one of waiting) {
      if (!isFree(one.kind)) continue;
      waiting.delete(one);
      one.begin(takeNow(one.kind));
    }
  }

  function takeNow(first: SlotKind): Slot {
    let kind: SlotKind | undefined = first;
    const change = (next: SlotKind | undefined): void => {
      if (kind) taken[kind]--;
      if (next) taken[next]++;
      kind = next;
    };
    taken[first]++;
    return {
      convertTo(next) {
        change(next);
        beginNext();
      },
      release() {
        change(undefined);
        beginNext();
      },
    };
  }

  return {
    take: (kind, signal) =>
      new Promise((resolve, reject) => {
        if (signal.aborted) return reject(signal.reason);
        const one = {
          kind,
          begin: (slot: Slot): void => {
            signal.removeEventListener("abort", onAbort);
            resolve(slot);
          },
        };
        const onAbort = (): void => {
          waiting.delete(one);
          reject(signal.reason);
        };
        signal.addEventListener("abort", onAbort, { once: true });
        waiting.add(one);
        beginNext();
      }),
  };
}
