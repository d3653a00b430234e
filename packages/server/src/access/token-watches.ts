import type { Principal } from "./principal.ts";

/** What is open in the name of a token: ended when the token is. */
export interface TokenWatches {
  /**
   * Calls `ended` once, when the token of the principal is no longer valid or grants something else. Returns a function that
   * ends the watch.
   */
  watch(principal: Principal, ended: () => void, how?: { withOperates?: boolean }): () => void;
  /** Compares every open watch with its token: tokens have changed. */
  recheck(): void;
}

interface Watch {
  rights: string;
  withOperates: boolean;
  ended: () => void;
}

/** `current` returns what a token grants now, from memory. Principals without a token (the local operator) never end. */
export function createTokenWatches(
  current: (sha256: string) => Principal | undefined,
): TokenWatches {
  const open = new Map<string, Set<Watch>>();

  function isOver({ rights, withOperates }: Watch, now: Principal | undefined): boolean {
    return now === undefined || rightsOf(now, withOperates) !== rights;
  }

  function remove(sha256: string, watch: Watch): void {
    const watches = open.get(sha256);
    watches?.delete(watch);
    if (watches?.size === 0) open.delete(sha256);
  }

  return {
    watch(principal, ended, { withOperates = false } = {}) {
      const { sha256 } = principal;
      if (sha256 === undefined) return () => {};
      const watch = { rights: rightsOf(principal, withOperates), withOperates, ended };
      // It may have ended since the caller was identified.
      if (isOver(watch, current(sha256))) {
        queueMicrotask(ended);
        return () => {};
      }
      const watches = open.get(sha256) ?? new Set();
      open.set(sha256, watches.add(watch));
      return () => remove(sha256, watch);
    },
    recheck() {
      for (const [sha256, watches] of open) {
        const now = current(sha256);
        for (const watch of watches)
          if (isOver(watch, now)) {
            remove(sha256, watch);
            watch.ended();
          }
      }
    },
  };
}

/** What is compared. Whether the token operates matters to streams only, which were opened with that scope. */
function rightsOf({ operates, ...rest }: Principal, withOperates: boolean): string {
  const entries = Object.entries({ ...rest, ...(withOperates && { operates }) });
  return JSON.stringify(entries.filter(([, value]) => value !== undefined).sort());
}
