import {
  type CallResult,
  FREE_ROWS_MAX,
  type ListedDeployment,
  type Member,
} from "@tenure/protocol";
import { matchWhole } from "@tenure/protocol/pattern";
import { type ClaimPolicy, claimPolicyOf } from "../../../packages/agent/src/claim/policy.ts";
import type { DeploymentCache } from "../../../packages/agent/src/loop/deployment-cache.ts";
import type { LoopPorts } from "../../../packages/agent/src/loop/loop-ports.ts";
import { createDeploymentCache } from "../../../packages/server/src/deployments/cache/deployment-cache.ts";
import {
  answerList,
  listParts,
} from "../../../packages/server/src/deployments/cache/list-delta.ts";
import { answerSubset } from "../../../packages/server/src/deployments/cache/list-subset.ts";
import type { DeploymentRow } from "../../../packages/server/src/deployments/deployment-row.ts";
import type { Costs } from "./costs.ts";
import { createInstanceLog, createOwnerNumbers, type ReadTo } from "./instance-log.ts";
import { type ListParts, partsOf } from "./list-parts.ts";
import type { Change, TableView, VersionedTable } from "./table.ts";

/** How nodes come to their lists. */
export type ListKind =
  /** They see the history of the table, and instances count what they would send. */
  | "shared"
  /** The server's own index and answers, and the agent's own list in each node: for small fleets only. */
  | "subset"
  /** The same, with lists of every row. */
  | "whole";

export interface Answered<A> {
  answer: A;
  parts: ListParts;
  more: boolean;
}

/** The list of one instance. */
export interface InstanceList {
  /** Each row changed once, up to this state of the table. */
  add(changes: readonly Change[], tableAt: number): void;
  /** Connects a node: `read` sends a request that the instance answers with `write`, which has a limit of bytes. */
  listOf(reader: Member, read: ReadList): NodeList;
}

export type ReadList = <A>(write: (bytesMax: number) => Answered<A>) => Promise<A>;

export interface NodeList {
  list: LoopPorts["list"];
  /** In place of the agent's own. */
  cache?: DeploymentCache;
  policy: ClaimPolicy;
}

export interface InstanceListOptions {
  table: VersionedTable;
  costs: Costs;
  /** Nodes that are gone, whether or not an instance knows it. */
  lost: ReadonlySet<string>;
}

/** Returns what creates the list of an instance. */
export function instanceLists(kind: ListKind, options: InstanceListOptions): () => InstanceList {
  const numberOf = createOwnerNumbers();
  return () => (kind === "shared" ? createSharedList(options, numberOf) : createOwnList(kind));
}

function createOwnList(kind: "subset" | "whole"): InstanceList {
  const cache = createDeploymentCache();
  return {
    add(changes) {
      for (const { after } of changes) cache.put(rowOf(after));
    },
    listOf: (reader, read) => ({
      list: (revision, owners) =>
        read((answerBytesMax) => {
          const options = { cache, origin: "i", reader, revision, answerBytesMax, ...NO_SAMPLES };
          const written =
            kind === "whole"
              ? answerList(options)
              : answerSubset({ ...options, owners, refused: new Map() });
          const json = Buffer.concat(listParts(written)).toString();
          const answer = JSON.parse(json) as CallResult<"deployment.list">;
          return { answer, parts: partsOf(answer), more: answer.more === true };
        }),
      policy: claimPolicyOf("deployment_count")!,
    }),
  };
}

const NO_SAMPLES = { matches: matchWhole, samples: () => ({}) };

const rowOf = ({ secret_versions: _, ...row }: ListedDeployment): DeploymentRow => ({
  ...{ tenant: "default", ...row, args: [], env: {} },
  ...{ created_at: new Date(row.created_at), updated_at: new Date(row.updated_at) },
});

/**
 * What a node would have, looked up in the history of the table: ten thousand copies of the list fit nowhere. That a fleet
 * does the same with these as with its own lists is shown by `scale.test.ts`.
 */
function createSharedList(
  { table, costs, lost }: InstanceListOptions,
  numberOf: (address: string) => number,
): InstanceList {
  const log = createInstanceLog(costs, numberOf);

  return {
    add: log.add,
    listOf({ address: me }, read) {
      let readTo: ReadTo = { position: 0, isContinued: false };
      let tableAt = 0;
      const seen = (): TableView => table.at(tableAt);

      async function refresh(): Promise<boolean> {
        for (const former = readTo.position; ; ) {
          const next = await read((bytesMax) => {
            const answer = log.answer(me, readTo, bytesMax);
            return { answer, parts: answer.parts, more: answer.tableAt === undefined };
          });
          readTo = next.readTo;
          if (next.tableAt === undefined) continue;
          tableAt = next.tableAt;
          return readTo.position > former;
        }
      }

      return {
        list: () => Promise.reject(new Error("the list is shared")),
        cache: {
          ...UNUSED,
          refresh,
          relevant(here: ReadonlyMap<string, Member>) {
            const gone = [...lost].filter((address) => !here.has(address));
            return [...seen().oldestFree(FREE_ROWS_MAX), ...seen().ownedBy(gone)];
          },
          claimWindow: () => seen().claimWindow(me),
        },
        policy: { providers: [], pickEligible: (nodeUnits) => seen().least(nodeUnits) },
      };
    },
  };
}

/** Of the agent's list, what no pass of these nodes needs. */
const UNUSED = {
  ...{ isFresh: true, resourceUsage: {}, skipped: [], counts: new Map(), owners: undefined },
  invalidate() {},
  recent: () => new Map(),
  forNode: () => [],
};
