import type { ListedDeployment, Member } from "@tenure/protocol";
import { createLoop, type Loop } from "../../../packages/agent/src/loop/loop.ts";
import type { LoopPorts } from "../../../packages/agent/src/loop/loop-ports.ts";
import { createChance } from "../chance.ts";
import { createTimeline, type Timeline } from "../timeline.ts";
import type { Costs } from "./costs.ts";
import type { ListKind } from "./lists.ts";
import { createScaleServer, type Planted, type ScaleServer, type Terminal } from "./server.ts";
import { createVersionedTable, type VersionedTable } from "./table.ts";
import { createTally, type Tally } from "./tally.ts";

export interface FleetOptions {
  nodes: number;
  deployments: number;
  instances: number;
  seed: number;
  costs: Costs;
  /** `shared` by default. */
  lists?: ListKind;
  planted?: Planted;
}

export interface ScaleFleet {
  readonly timeline: Timeline;
  readonly table: VersionedTable;
  readonly server: ScaleServer;
  readonly tally: Tally;
  readonly passes: number;
  /** Of the nodes that are there. */
  addresses(): readonly string[];
  gone(): readonly string[];
  lose(count: number): void;
}

const INTERVAL_MS = 5_000;

interface Node extends Terminal {
  isAlive: boolean;
  loop: Loop;
}

/** Nodes with the agent's own loop, against instances that are queues. `owned`: every deployment has its owner already. */
export function createScaleFleet(options: FleetOptions, begin: "empty" | "owned"): ScaleFleet {
  const { costs, planted = {} } = options;
  const chance = createChance(options.seed);
  const timeline = createTimeline();
  const table = createVersionedTable();
  const tally = createTally();
  const addresses = Array.from({ length: options.nodes }, () => addressOf(chance.fraction));
  const ownerOf = (nth: number) => addresses[nth % addresses.length]!;
  if (begin === "owned") for (const row of rowsOf(options.deployments, ownerOf)) table.insert(row);
  const members: ReadonlyMap<string, Member> = new Map(
    addresses.map((address) => [address, memberOf(address)]),
  );
  const server = createScaleServer({
    ...{ timeline, chance, table, tally, costs, planted, members },
    ...{ instances: options.instances, lists: options.lists ?? "shared" },
  });
  const nodes = addresses.map(createNode);
  let gone: readonly string[] = [];
  for (const { loop } of nodes) loop.start();

  function createNode(address: string): Node {
    let heard = members;
    const { list, cache, policy } = server.connect(members.get(address)!, () => node);
    const ports: LoopPorts = {
      me: address,
      clock: timeline,
      random: chance.fraction,
      members: async () => ({ view: "ready", members: heard }),
      list,
      release: (gone) => server.release(node, gone),
      claim: (candidates) => server.claim(node, candidates),
      reserve: () => Promise.reject(new Error("nobody drains")),
      changed() {},
      avoids: () => false,
      log() {},
    };
    const eligible = planted.anybodyClaims ? { pickEligible: (all: string[]) => all } : {};
    const node: Node = {
      address,
      isAlive: true,
      loop: createLoop(
        ports,
        { intervalMs: INTERVAL_MS, policy: { ...policy, ...eligible } },
        cache,
      ),
      wake: () => node.loop.wake(),
      heard(now) {
        heard = now;
      },
    };
    return node;
  }

  return {
    ...{ timeline, table, server, tally },
    get passes() {
      return nodes.reduce((sum, { loop }) => sum + loop.counts.passes, 0);
    },
    addresses: () => nodes.filter(({ isAlive }) => isAlive).map(({ address }) => address),
    gone: () => gone,
    lose(count) {
      gone = addresses.slice(0, count);
      for (const node of nodes.slice(0, count)) {
        node.isAlive = false;
        void node.loop.stop();
        void server.left(node);
      }
    },
  };
}

export function rowsOf(count: number, ownerOf: (nth: number) => string): ListedDeployment[] {
  return Array.from({ length: count }, (_, nth) => ({
    id: `00000000-0000-4000-8000-${String(nth).padStart(12, "0")}`,
    ...{ name: `deployment-${nth}`, package_name: "web", package_version: "1.0.0", command: "" },
    ...{ type: "deployment", address: ownerOf(nth), enabled: true, selector: {} },
    ...{ lost_after_ms: 0, generation: 1, revision: 1, moving_to: "", move_state: "" },
    created_at: "2023-01-01T00:00:00.000Z",
    updated_at: "2023-01-01T00:00:00.000Z",
  }));
}

const LETTERS = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

export function addressOf(fraction: () => number): string {
  const letter = () => LETTERS[Math.floor(fraction() * LETTERS.length)];
  return Array.from({ length: 44 }, letter).join("");
}

export const memberOf = (address: string): Member => ({
  ...{ address, name: address, instance_id: "i", epoch: 1, claim_policy: "deployment_count" },
  ...{ labels: {}, trusted_package_regexp: ".*", custom_command: false, draining: false },
  ...{ tags: { node_unit: true }, joined_at: "2026-01-01T00:00:00.000Z" },
});
