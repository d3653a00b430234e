import type {
  CallResult,
  ListedDeployment,
  MatchWhole,
  Member,
  SkippedDeployment,
} from "@tenure/protocol";
import { createRowIndex, type RowIndex } from "./row-index.ts";

export interface HeldList {
  /** Reads what changed. Answers whether anything did. A list that could not be read to its end changes nothing. */
  read(): Promise<boolean>;
  /** The next read is of everything: whatever this list was read from may have been behind. */
  distrust(): void;
  /** Whether everything in it was read after the last distrust. */
  readonly isFresh: boolean;
  /** Fresh samples by address, as the newest answer had them. */
  readonly resourceUsage: CallResult<"deployment.list">["resource_usage"];
  /** Rows of the last read that could not be read; this node goes on with what it has of them. */
  readonly skipped: readonly SkippedDeployment[];
  readonly counts: ReadonlyMap<string, number>;
  recent(): ReadonlyMap<string, number>;
  relevant(members: ReadonlyMap<string, Member>, matches?: MatchWhole): ListedDeployment[];
  aside(me: string): ListedDeployment[];
  concerning(address: string): ListedDeployment[];
}

/** A server that always says there is more would be asked for ever. */
const PIECES_MAX = 10_000;

/** This node's copy of the deployment list, kept by revision: a read costs what changed. */
export function createHeldList(
  list: (revision: string | undefined) => Promise<CallResult<"deployment.list">>,
): HeldList {
  let held = createRowIndex();
  let revision: string | undefined;
  /** A whole list of which some pieces have come. */
  let coming: { index: RowIndex; at: string } | undefined;
  let distrusts = 0;
  let resourceUsage: HeldList["resourceUsage"] = {};
  let skipped: SkippedDeployment[] = [];
  /** Changed and not told yet: also when a later piece of the same read did not come. */
  let changed = false;

  async function read(): Promise<boolean> {
    skipped = [];
    // A full list comes in pieces, and half of one would stop the other half of what runs here. When one of seventy
    // does not come in time, the next read goes on from there: a busy server would never see the end of it.
    let index = coming?.index ?? held;
    let at = coming?.at ?? revision;
    const begunAt = distrusts;
    for (let piece = 0; piece < PIECES_MAX; piece++) {
      const answer = await list(at);
      if (answer.answer === "full") index = createRowIndex();
      for (const id of answer.removed) index.remove(id);
      for (const row of answer.items) index.put(row);
      for (const row of answer.skipped ?? []) {
        const known = held.get(row.id);
        // Where it has an owner its child goes on. A free one is not claimed: it cannot be run.
        if (known && (known.type === "daemon" || known.address !== "")) index.put(known);
        else index.remove(row.id);
        skipped.push(row);
      }
      changed ||= answer.answer !== "unchanged";
      at = answer.revision;
      if (begunAt === distrusts) {
        if (index === held) revision = at;
        else coming = { index, at };
      }
      if (!answer.more) {
        held = index;
        coming = undefined;
        // Distrusted on the way: what was read may be from before.
        if (begunAt === distrusts) revision = at;
        resourceUsage = answer.resource_usage;
        const told = changed;
        changed = false;
        return told;
      }
    }
    throw new Error("the list of deployments has no end");
  }

  return {
    read,
    distrust() {
      distrusts += 1;
      revision = undefined;
      coming = undefined;
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
      return held.counts;
    },
    recent: () => held.recent(),
    relevant: (members, matches) => held.relevant(members, matches),
    aside: (me) => held.aside(me),
    concerning: (address) => held.concerning(address),
  };
}
