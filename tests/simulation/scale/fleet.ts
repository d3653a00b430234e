import {
  type DeploymentTerm,
  type ListedDeployment,
  type Member,
  TenureError,
} from "@tenure/protocol";
import type { ClaimPolicy } from "../../../packages/agent/src/claim/policy.ts";
import type { HeldList } from "../../../packages/agent/src/loop/list.ts";
import { createLoop, type Loop } from "../../../packages/agent/src/loop/loop.ts";
import type { LoopPorts } from "../../../packages/agent/src/loop/ports.ts";
import { FREE_ROWS_MAX } from "../../../packages/agent/src/loop/row-index.ts";
import { createChance } from "../chance.ts";
import { createTimeline, type Timeline } from "../timeline.ts";
import type { Costs } from "./costs.ts";
import { createQueue, type Queue } from "./queue.ts";
import { createVersionedTable, type TableView, type VersionedTable } from "./table.ts";

export interface FleetOptions {
  nodes: number;
  deployments: number;
  instances: number;
  seed: number;
  costs: Costs;
}

export interface Tally {
  lists: number;
  listRows: number;
  claims: number;
  conflicts: number;
  releases: number;
  tells: number;
  hostEvents: number;
  timeouts: number;
  bytesDown: number;
  bytesUp: number;
}

export interface ScaleFleet {
  readonly timeline: Timeline;
  readonly table: VersionedTable;
  readonly tally: Tally;
  /** Calls for the list in each second so far. */
  readonly listsBySecond: readonly number[];
  readonly instances: readonly { cpu: Queue }[];
  readonly postgres: Queue;
  readonly passes: number;
  addresses(): readonly string[];
  /** Rows that appear at once, as an operator's script would make them. */
  add(rows: ListedDeployment[]): void;
  /** Rows that have their owner from the beginning. */
  assign(rows: ListedDeployment[]): void;
  lose(addresses: readonly string[]): void;
}

const INTERVAL_MS = 5_000;
const CALL_LIMIT_MS = 4_000;

interface Node {
  address: string;
  instance: Instance;
  members: ReadonlyMap<string, Member>;
  loop: Loop;
  isAlive: boolean;
}

interface Instance {
  cpu: Queue;
  nodes: Node[];
  copyAt: number;
  members: ReadonlyMap<string, Member>;
  copying: Promise<void> | undefined;
  copyAgain: boolean;
  looking: boolean;
  lookAgain: boolean;
}

/**
 * Nodes with the agent's own loop, against a server that is a table with a history and a few queues. What a node would
 * hold of the list is looked up in that history: ten thousand copies of it would fit nowhere.
 */
export function createScaleFleet(options: FleetOptions): ScaleFleet {
  const { costs } = options;
  const chance = createChance(options.seed);
  const timeline = createTimeline();
  const table = createVersionedTable(8 * options.deployments + 1_000);
  const postgres = createQueue(timeline, costs.postgresWorkers);
  const lost = new Set<string>();
  const listsBySecond: number[] = [];
  const tally: Tally = {
    ...{ lists: 0, listRows: 0, claims: 0, conflicts: 0, releases: 0 },
    ...{ tells: 0, hostEvents: 0, timeouts: 0, bytesDown: 0, bytesUp: 0 },
  };
  const addresses = Array.from({ length: options.nodes }, () => addressOf(chance.fraction));
  let members: ReadonlyMap<string, Member> = new Map(
    addresses.map((address) => [address, memberOf(address)]),
  );
  const instances = Array.from(
    { length: options.instances },
    (): Instance => ({
      ...{ cpu: createQueue(timeline), nodes: [], copyAt: 0, members },
      ...{ copying: undefined, copyAgain: false, looking: false, lookAgain: false },
    }),
  );
  const nodes = addresses.map((address, index) => {
    const instance = instances[index % instances.length]!;
    const node = createNode(address, instance);
    instance.nodes.push(node);
    return node;
  });
  const byAddress = new Map(nodes.map((node) => [node.address, node]));
  for (const { loop } of nodes) loop.start();

  const latency = () => timeline.sleep(chance.between(...costs.latencyMs));

  /** There, through the instance's queue, and back; or nothing within the limit, though the work is done all the same. */
  async function call<T>(
    node: Node,
    cpuMs: () => number,
    answer: () => Promise<T> | T,
  ): Promise<T> {
    const { cpu } = node.instance;
    const answered = (async () => {
      await latency();
      await cpu.work(cpuMs());
      const result = await answer();
      await latency();
      return result;
    })();
    return new Promise<T>((resolve, reject) => {
      const cancel = timeline.after(CALL_LIMIT_MS, () => {
        tally.timeouts += 1;
        reject(new TenureError("DEPENDENCY_DOWN", { dependency: "the server", reason: "late" }));
      });
      answered.then(
        (result) => {
          cancel();
          if (node.isAlive) resolve(result);
        },
        (error: unknown) => {
          cancel();
          reject(error);
        },
      );
    });
  }

  function createNode(address: string, instance: Instance): Node {
    const list = createSharedList(() => node);
    const ports: LoopPorts = {
      me: address,
      clock: timeline,
      random: chance.fraction,
      members: async () => ({ view: "ready", members: node.members }),
      list: () => Promise.reject(new Error("the list is shared")),
      release: (gone) => release(node, gone),
      claim: (candidates) => claim(node, candidates),
      reserve: () => Promise.reject(new TenureError("ERR_CLAIM_CONFLICT", { candidates: 0 })),
      changed() {},
      avoids: () => false,
      log() {},
    };
    const node: Node = {
      ...{ address, instance, isAlive: true, members },
      loop: createLoop(ports, { intervalMs: INTERVAL_MS, policy: policyOf(list) }, list),
    };
    return node;
  }

  interface SharedList extends HeldList {
    view(): TableView;
  }

  function createSharedList(node: () => Node): SharedList {
    let position = 0;
    let view: { at: number; head: number; seen: TableView } | undefined;

    async function piece(): Promise<{ rows: number; more: boolean }> {
      const me = node();
      tally.lists += 1;
      const second = Math.floor(timeline.monotonicMs() / 1_000);
      listsBySecond[second] = (listsBySecond[second] ?? 0) + 1;
      let rows = 0;
      let next = position;
      let more = false;
      const cost = () => {
        const { copyAt } = me.instance;
        const all = table.changedBetween(position, copyAt);
        rows = Math.min(all, costs.pieceRows);
        more = all > rows;
        next = more ? table.positionAfter(position, rows) : copyAt;
        return costs.listMs + rows * costs.listRowMs;
      };
      await call(me, cost, () => {
        tally.listRows += rows;
        tally.bytesDown += costs.answerBytes + rows * costs.rowBytes;
        tally.bytesUp += costs.answerBytes;
      });
      position = Math.max(position, next);
      return { rows, more };
    }

    function seen(): TableView {
      const head = table.head();
      if (view?.at !== position || view.head !== head)
        view = { at: position, head, seen: table.at(position) };
      return view.seen;
    }

    return {
      async read() {
        for (let moved = false; ; ) {
          const { rows, more } = await piece();
          moved ||= rows > 0;
          if (!more) return moved;
        }
      },
      distrust() {},
      isFresh: true,
      resourceUsage: {},
      counts: new Map(),
      relevant(here) {
        const gone = [...lost].filter((address) => !here.has(address));
        return [...seen().oldestFree(FREE_ROWS_MAX), ...seen().ownedBy(gone)];
      },
      concerning: () => [],
      view: seen,
    };
  }

  async function claim(node: Node, candidates: readonly DeploymentTerm[]): Promise<DeploymentTerm> {
    tally.bytesUp += costs.answerBytes + candidates.length * costs.candidateBytes;
    tally.bytesDown += costs.answerBytes;
    return call(
      node,
      () => costs.callMs,
      async () => {
        await postgres.work(costs.claimMs);
        const free = lost.has(node.address)
          ? undefined
          : candidates.map((term) => table.claim(term)).find((row) => row !== undefined);
        if (!free) {
          tally.conflicts += 1;
          throw new TenureError("ERR_CLAIM_CONFLICT", { candidates: candidates.length });
        }
        tally.claims += 1;
        const { id, generation } = table.write(free.id, {
          address: node.address,
          generation: free.generation + 1,
          updated_at: timeOf(timeline),
        });
        notify();
        await refreshCopy(node.instance);
        return { id, generation };
      },
    );
  }

  async function release(node: Node, gone: readonly string[]): Promise<readonly DeploymentTerm[]> {
    tally.releases += 1;
    tally.bytesUp += costs.answerBytes + gone.length * 48;
    return call(
      node,
      () => costs.callMs,
      async () => {
        const rows = gone.filter((address) => lost.has(address)).flatMap(table.ownedBy);
        await postgres.work(costs.statementMs + gone.length * 0.01 + rows.length * 0.05);
        const freed = gone
          .filter((address) => lost.has(address))
          .flatMap(table.ownedBy)
          .map(({ id, generation }) =>
            table.write(id, {
              address: "",
              generation: generation + 1,
              updated_at: timeOf(timeline),
            }),
          );
        tally.bytesDown += costs.answerBytes + freed.length * costs.candidateBytes;
        if (freed.length > 0) {
          wakeEverybody = table.head();
          notify();
          await refreshCopy(node.instance);
        }
        return freed.map(({ id, generation }) => ({ id, generation }));
      },
    );
  }

  /** Changes up to here woke everybody, or will: some row of them is free. */
  let wakeEverybody = 0;

  function notify(): void {
    for (const instance of instances) void refreshCopy(instance);
  }

  function refreshCopy(instance: Instance): Promise<void> {
    if (instance.copying) {
      instance.copyAgain = true;
      return instance.copying.then(() => instance.copying);
    }
    instance.copying = readCopy(instance).then(() => {
      instance.copying = undefined;
      if (!instance.copyAgain) return undefined;
      instance.copyAgain = false;
      return refreshCopy(instance);
    });
    return instance.copying;
  }

  async function readCopy(instance: Instance): Promise<void> {
    const from = instance.copyAt;
    const rows = table.changedBetween(from, table.head());
    await postgres.work(costs.statementMs + rows * costs.readRowMs);
    const to = table.head();
    await instance.cpu.work(rows * costs.readRowMs);
    instance.copyAt = to;
    if (wakeEverybody > from && wakeEverybody <= to) await tellAll(instance);
  }

  async function tellAll(instance: Instance): Promise<void> {
    const here = instance.nodes.filter(({ isAlive }) => isAlive);
    tally.tells += here.length;
    tally.bytesDown += here.length * costs.tellBytes;
    await instance.cpu.work(here.length * costs.tellMs);
    for (const node of here)
      timeline.after(chance.between(...costs.latencyMs), () => node.isAlive && node.loop.wake());
  }

  async function lookAtMembers(instance: Instance): Promise<void> {
    if (instance.looking) {
      instance.lookAgain = true;
      return;
    }
    instance.looking = true;
    do {
      instance.lookAgain = false;
      await postgres.work(costs.statementMs + members.size * costs.readRowMs);
      const now = members;
      const changes = Math.abs(instance.members.size - now.size);
      await instance.cpu.work(now.size * costs.lookMemberMs);
      instance.members = now;
      if (changes > 0) await tellChanges(instance, changes);
    } while (instance.lookAgain);
    instance.looking = false;
  }

  async function tellChanges(instance: Instance, changes: number): Promise<void> {
    const here = instance.nodes.filter(({ isAlive }) => isAlive);
    const now = instance.members;
    tally.hostEvents += here.length * changes;
    tally.bytesDown += here.length * changes * costs.hostEventBytes;
    await instance.cpu.work(here.length * changes * costs.hostEventMs);
    for (const node of here)
      timeline.after(chance.between(...costs.latencyMs), () => {
        node.members = now;
        if (node.isAlive) node.loop.wake();
      });
  }

  async function leave(node: Node): Promise<void> {
    await timeline.sleep(chance.between(1, 50));
    await node.instance.cpu.work(costs.callMs);
    await postgres.work(costs.statementMs);
    lost.add(node.address);
    const next = new Map(members);
    next.delete(node.address);
    members = next;
    for (const instance of instances) void lookAtMembers(instance);
  }

  return {
    ...{ timeline, table, tally, listsBySecond, instances, postgres },
    get passes() {
      return nodes.reduce((sum, { loop }) => sum + loop.counts.passes, 0);
    },
    addresses: () => addresses,
    add(rows) {
      for (const row of rows) table.insert(row);
      wakeEverybody = table.head();
      notify();
    },
    assign(rows) {
      for (const row of rows) table.insert(row);
      for (const instance of instances) instance.copyAt = table.head();
    },
    lose(gone) {
      for (const address of gone) {
        const node = byAddress.get(address)!;
        node.isAlive = false;
        void node.loop.stop();
        void leave(node);
      }
    },
  };
}

/**
 * `deployment_count` for ten thousand nodes at a time: the same answer as the agent's own (`scale.test.ts`), from a table
 * that all of them share. The agent's own is measured beside it.
 */
export function policyOf(list: { view(): TableView }): ClaimPolicy {
  return {
    providers: [],
    pickEligible: (nodeUnits) => list.view().least(nodeUnits),
  };
}

const timeOf = (timeline: Timeline): string =>
  new Date(1_700_000_000_000 + timeline.monotonicMs()).toISOString();

const LETTERS = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

export function addressOf(fraction: () => number): string {
  return Array.from({ length: 44 }, () => LETTERS[Math.floor(fraction() * LETTERS.length)]).join(
    "",
  );
}

export const memberOf = (address: string): Member => ({
  ...{ address, name: address, instance_id: "i", epoch: 1, claim_policy: "deployment_count" },
  ...{ labels: {}, trusted_package_regexp: ".*", custom_command: false, draining: false },
  ...{ tags: { node_unit: true }, joined_at: "2026-01-01T00:00:00.000Z" },
});
