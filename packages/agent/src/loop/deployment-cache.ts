import type {
  CallResult,
  ListedDeployment,
  MatchWhole,
  Member,
  SkippedDeployment,
} from "@tenure/protocol";
import { createListCopy, type ListCopy } from "./list-copy.ts";

/**
 * This node's copy of the deployment list, refreshed by revision: a refresh costs as much as has changed.
 *
 * Invariants: the rows are always those of a complete list, so half a list never stops half of the children; a page
 * that arrived is not requested again unless the cache was invalidated meanwhile.
 */
export interface DeploymentCache {
  /**
   * Reads what has changed, and returns whether anything did. A refresh that fails half-way changes no row. A part of the
   * list contains the rows of these owners.
   */
  refresh(owners?: readonly string[]): Promise<boolean>;
  /** Makes the next refresh read the whole list: the instance that this list came from may have been behind. */
  invalidate(): void;
  /** Whether every row was read after the last `invalidate`. */
  readonly isFresh: boolean;
  /** Current samples by address, from the newest answer. */
  readonly resourceUsage: CallResult<"deployment.list">["resource_usage"];
  /** Rows of the last refresh that could not be read; the cache keeps their last version. */
  readonly skipped: readonly SkippedDeployment[];
  readonly counts: ReadonlyMap<string, number>;
  /** Every owner, when the rows are only a part of the list. */
  readonly owners: Iterable<string> | undefined;
  recent(): ReadonlyMap<string, number>;
  relevant(members: ReadonlyMap<string, Member>, matches?: MatchWhole): ListedDeployment[];
  claimWindow(me: string): ListedDeployment[];
  forNode(address: string): ListedDeployment[];
}

/** Ends the refresh from a server that always announces another page. */
const PAGES_MAX = 10_000;

export function createDeploymentCache(
  list: (
    revision: string | undefined,
    owners: readonly string[],
  ) => Promise<CallResult<"deployment.list">>,
): DeploymentCache {
  let copy = createListCopy();
  let revision: string | undefined;
  /** The pages of a whole list that have arrived so far. */
  let partial: { copy: ListCopy; revision: string } | undefined;
  let invalidations = 0;
  let resourceUsage: DeploymentCache["resourceUsage"] = {};
  let skipped: SkippedDeployment[] = [];
  /** Changes that no refresh has returned yet, because a later page of the same refresh failed. */
  let isChanged = false;

  async function refresh(owners: readonly string[] = []): Promise<boolean> {
    skipped = [];
    // When a page is late, the next refresh continues from there: a busy server would never send all seventy in one go.
    let next = partial?.copy ?? copy;
    let at = partial?.revision ?? revision;
    const startedAt = invalidations;
    for (let page = 0; page < PAGES_MAX; page++) {
      const answer = await list(at, owners);
      if (answer.answer === "full") next = createListCopy();
      for (const row of answer.skipped ?? []) keepKnown(next, row);
      if (next.apply(answer) || answer.answer !== "unchanged") isChanged = true;
      at = answer.revision;
      if (startedAt === invalidations) {
        if (next === copy) revision = at;
        else partial = { copy: next, revision: at };
      }
      if (!answer.more) {
        copy = next;
        partial = undefined;
        // After an invalidation on the way the pages may be old: the next refresh reads everything.
        if (startedAt === invalidations) revision = at;
        resourceUsage = answer.resource_usage;
        const hasChanged = isChanged;
        isChanged = false;
        return hasChanged;
      }
    }
    throw new Error(`deployment list has more than ${PAGES_MAX} pages`);
  }

  /** The child of an owned row goes on. A free row is not claimed, because it could not be run. */
  function keepKnown(next: ListCopy, row: SkippedDeployment): void {
    const known = copy.index.get(row.id);
    if (known && (known.type === "daemon" || known.address !== "")) next.keep(known);
    else next.index.remove(row.id);
    skipped.push(row);
  }

  return {
    refresh,
    invalidate() {
      invalidations += 1;
      revision = undefined;
      partial = undefined;
    },
    get isFresh() {
      return revision !== undefined;
    },
    get resourceUsage() {
      return resourceUsage;
    },
    get skipped() {
      return skipped;
    },
    get counts() {
      return copy.owners ?? copy.index.counts;
    },
    get owners() {
      return copy.owners?.keys();
    },
    recent: () => (copy.owners ? copy.recent : copy.index.recent()),
    relevant: (members, matches) => copy.index.relevant(members, matches),
    claimWindow: (me) => copy.index.claimWindow(me),
    forNode: (address) => copy.index.forNode(address),
  };
}
