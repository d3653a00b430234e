/** Room for work that must not all happen at once. */
export interface Slots {
  /** Rejects when the signal aborts before there is room. */
  take(kind: SlotKind, signal: AbortSignal): Promise<Slot>;
}

export type SlotKind = "install" | "start";

export interface Slot {
  /** Goes on in the same slot: what was installed is started. */
  turnTo(kind: "start"): void;
  /** May be called twice. */
  giveBack(): void;
}

/**
 * At most `max` installs and starts at once, first come, first served. Installs leave one slot free: a registry that
 * does not answer holds them for minutes, and what is already installed must start nevertheless.
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
      turnTo(next) {
        change(next);
        beginNext();
      },
      giveBack() {
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
            signal.removeEventListener("abort", turnAway);
            resolve(slot);
          },
        };
        const turnAway = (): void => {
          waiting.delete(one);
          reject(signal.reason);
        };
        signal.addEventListener("abort", turnAway, { once: true });
        waiting.add(one);
        beginNext();
      }),
  };
}
