import { type CallResult, FREE_ROWS_MAX, type Member } from "@tenure/protocol";
import { type ClaimPolicy, claimPolicyOf } from "../../../packages/agent/src/claim/policy.ts";
import type { DeploymentCache } from "../../../packages/agent/src/loop/deployment-cache.ts";
import type { LoopPorts } from "../../../packages/agent/src/loop/loop-ports.ts";
import type { Reading } from "./server.ts";
import type { TableView, VersionedTable } from "./table.ts";

/** How a node comes to its list and its metric. */
export interface NodeList {
  list: LoopPorts["list"];
  /** In place of the agent's own. */
  cache?: DeploymentCache;
  policy: ClaimPolicy;
}

export type ReadList = (from: number) => Promise<Reading>;

interface ListOptions {
  me: string;
  table: VersionedTable;
  read: ReadList;
  /** What it had read before the simulation began. */
  readTo: number;
  /** Nodes that are gone, whether or not this one has heard of it. */
  lost: ReadonlySet<string>;
}

/** The agent's own list and policy: a copy of every row per node, so for small fleets only. */
export function createOwnList({ table, read, readTo }: ListOptions): NodeList {
  return {
    async list(revision) {
      const from = revision === undefined ? 0 : Number(revision);
      const { position, more } = await read(Math.max(from, readTo));
      const items = table.rowsChanged(from, position);
      const answer = from === 0 ? "full" : items.length > 0 ? "delta" : "unchanged";
      const rest = { removed: [], resource_usage: {}, ...(more && { more }) };
      return {
        revision: String(position),
        answer,
        items,
        ...rest,
      } as CallResult<"deployment.list">;
    },
    policy: claimPolicyOf("deployment_count")!,
  };
}

/**
 * What a node would hold, looked up in the history of the table: ten thousand copies of a hundred thousand rows fit
 * nowhere. That a fleet does the same with these as with its own lists is shown by `scale.test.ts`.
 */
export function createSharedList({ me, table, read, readTo, lost }: ListOptions): NodeList {
  let position = readTo;
  const seen = (): TableView => table.at(position);

  return {
    list: () => Promise.reject(new Error("the list is shared")),
    cache: {
      async refresh() {
        for (let moved = false; ; ) {
          const reading = await read(position);
          moved ||= reading.rows > 0;
          position = reading.position;
          if (!reading.more) return moved;
        }
      },
      invalidate() {},
      isFresh: true,
      resourceUsage: {},
      skipped: [],
      counts: new Map(),
      owners: undefined,
      recent: () => new Map(),
      relevant(here: ReadonlyMap<string, Member>) {
        const gone = [...lost].filter((address) => !here.has(address));
        return [...seen().oldestFree(FREE_ROWS_MAX), ...seen().ownedBy(gone)];
      },
      claimWindow: () => seen().claimWindow(me),
      forNode: () => [],
    },
    policy: { providers: [], pickEligible: (nodeUnits) => seen().least(nodeUnits) },
  };
}
