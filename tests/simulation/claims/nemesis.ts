import type { Chance } from "../chance.ts";
import type { Timeline } from "../timeline.ts";
import type { Way } from "../wire.ts";
import type { Arbiter } from "./arbiter.ts";
import type { Instance } from "./instance.ts";
import type { NodeUnit } from "./node-unit.ts";

export interface Nemesis {
  isCut(node: string, instance: string, way: Way): boolean;
  /** How much longer everything takes between this node and its instance. */
  delayMs(address: string): number;
  isSlow(): boolean;
  isDeaf(): boolean;
  /** Does one thing at a time until then. */
  rage(untilMs: number): void;
  /** Everything works again from now on. */
  heal(): void;
  /** Rows that somebody took from a live node by hand: nothing keeps two copies of those apart but the fence. */
  readonly evicted: ReadonlySet<string>;
  readonly done: ReadonlyMap<string, number>;
}

export interface Prey {
  timeline: Timeline;
  chance: Chance;
  arbiter: Arbiter;
  instances: readonly Instance[];
  nodes: readonly NodeUnit[];
  /** What an operator does to rows. */
  addRows(count: number): void;
}

/** Crashes, cuts, stands still, drains, restarts and changes rows, all by the seed. */
export function createNemesis(prey: () => Prey): Nemesis {
  const cuts = new Set<{ node: string; instance: string | undefined; ways: Way[] }>();
  const slow = new Set<string>();
  const evicted = new Set<string>();
  const done = new Map<string, number>();
  let slowUntilMs = 0;
  let deafUntilMs = 0;
  let isRaging = false;

  const anyNode = () => prey().chance.oneOf(prey().nodes);
  const later = (minMs: number, maxMs: number, act: () => void) =>
    prey().timeline.after(prey().chance.between(minMs, maxMs), act);

  function crash(node: NodeUnit): void {
    node.crash();
    later(500, 40_000, () => node.boot());
  }

  /** From everybody, or from one instance while the others can be reached. */
  function cutOff(node: NodeUnit, ways: Way[]): void {
    const { chance, instances } = prey();
    const instance = chance.isTrue(0.5) ? chance.oneOf(instances).id : undefined;
    const cut = { node: node.spec.address, instance, ways };
    cuts.add(cut);
    later(3_000, 40_000, () => cuts.delete(cut));
  }

  const FAULTS: Record<string, () => void> = {
    crash: () => crash(anyNode()),
    partition: () => cutOff(anyNode(), ["up", "down"]),
    deaf_node: () => cutOff(anyNode(), ["down"]),
    mute_node: () => cutOff(anyNode(), ["up"]),
    slow_way() {
      const { address } = anyNode().spec;
      slow.add(address);
      later(2_000, 20_000, () => slow.delete(address));
    },
    freeze() {
      const node = anyNode();
      node.freeze();
      later(1_000, 30_000, () => node.thaw());
    },
    flap() {
      const node = anyNode();
      for (const atMs of [0, 3_000, 6_000])
        prey().timeline.after(atMs, () => {
          if (!isRaging) return;
          node.crash();
          later(200, 2_000, () => node.boot());
        });
    },
    drain() {
      const { arbiter } = prey();
      const { address } = anyNode().spec;
      arbiter.nodes.setDraining(address, true);
      later(5_000, 60_000, () => arbiter.nodes.setDraining(address, false));
    },
    dominoes() {
      for (const [index, node] of prey().nodes.entries())
        prey().timeline.after(400 * index, () => {
          if (!isRaging) return;
          node.crash();
          later(100, 3_000, () => node.boot());
        });
    },
    slow_dominoes() {
      FAULTS.slow_store!();
      prey().addRows(3);
      later(100, 1_000, FAULTS.dominoes!);
    },
    slow_drain() {
      FAULTS.slow_way!();
      later(100, 2_000, FAULTS.drain!);
    },
    mass_loss() {
      const { nodes } = prey();
      for (const node of nodes.slice(0, Math.ceil(nodes.length * 0.7))) crash(node);
    },
    kill_instance() {
      const instance = prey().chance.oneOf(prey().instances);
      instance.kill();
      later(200, 15_000, () => instance.start());
    },
    stop_instance() {
      const instance = prey().chance.oneOf(prey().instances);
      instance.stop();
      later(200, 10_000, () => instance.start());
    },
    blackout() {
      for (const instance of prey().instances) {
        instance.kill();
        later(10_000, 35_000, () => instance.start());
      }
    },
    slow_store() {
      slowUntilMs = prey().timeline.monotonicMs() + prey().chance.between(1_000, 15_000);
    },
    lost_notify() {
      deafUntilMs = prey().timeline.monotonicMs() + prey().chance.between(1_000, 15_000);
    },
    add_rows: () => prey().addRows(1 + Math.floor(prey().chance.between(0, 4))),
    /** Somebody who cannot make up their mind while nodes are looking. */
    add_and_change() {
      prey().addRows(1 + Math.floor(prey().chance.between(0, 4)));
      for (let times = 0; times < 5; times++) later(5, 500, changeRow);
    },
    change_row: () => changeRow(),
    /** Somebody takes a row away by hand, again and again, with SQL. */
    evict() {
      const rows = prey()
        .arbiter.deployments.all()
        .filter(({ address }) => address !== "");
      if (rows.length === 0) return;
      const { id } = prey().chance.oneOf(rows);
      evicted.add(id);
      for (let times = 0; times < 20; times++) later(0, 1_000, () => takeAway(id));
    },
  };

  function takeAway(id: string): void {
    const { deployments } = prey().arbiter;
    const row = deployments.get(id);
    if (row?.type !== "deployment" || row.address === "" || row.moving_to !== "") return;
    deployments.write(id, { address: "", generation: row.generation + 1 });
  }

  function changeRow(): void {
    const { arbiter, chance } = prey();
    const all = arbiter.deployments.all().filter(({ type }) => type === "deployment");
    const free = all.filter(({ address }) => address === "");
    const rows = free.length > 0 && chance.isTrue(0.5) ? free : all;
    if (rows.length === 0) return;
    const row = chance.oneOf(rows);
    if (chance.isTrue(0.2)) arbiter.deployments.remove(row.id);
    else arbiter.deployments.write(row.id, { enabled: !row.enabled, revision: row.revision + 1 });
  }

  function strike(untilMs: number): void {
    const { chance, timeline } = prey();
    const name = chance.oneOf(Object.keys(FAULTS));
    done.set(name, (done.get(name) ?? 0) + 1);
    FAULTS[name]!();
    timeline.after(chance.between(200, 4_000), () => {
      if (isRaging && timeline.monotonicMs() < untilMs) strike(untilMs);
    });
  }

  return {
    isCut: (node, instance, way) =>
      [...cuts].some(
        (cut) =>
          cut.node === node && (cut.instance ?? instance) === instance && cut.ways.includes(way),
      ),
    delayMs: (address) => (slow.has(address) ? prey().chance.between(100, 2_500) : 0),
    isSlow: () => prey().timeline.monotonicMs() < slowUntilMs,
    isDeaf: () => prey().timeline.monotonicMs() < deafUntilMs,
    rage(untilMs) {
      isRaging = true;
      strike(untilMs);
    },
    heal() {
      isRaging = false;
      cuts.clear();
      slow.clear();
      slowUntilMs = 0;
      deafUntilMs = 0;
      for (const instance of prey().instances) instance.start();
      const { nodes, chance } = prey();
      for (const [index, node] of nodes.entries()) {
        node.thaw();
        // Somebody is gone for good: what it had must run elsewhere.
        if (index > 0 && chance.isTrue(0.2)) node.retire();
        else node.boot();
      }
    },
    evicted,
    done,
  };
}
