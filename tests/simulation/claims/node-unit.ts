import type { NodeTraits } from "@tenure/protocol";
import type { Clock } from "@tenure/sdk";
import { claimPolicyOf } from "../../../packages/agent/src/claim/policy.ts";
import type { LoopPorts } from "../../../packages/agent/src/loop/loop-ports.ts";
import { createReconciler, type Reconciler } from "../../../packages/agent/src/reconciler.ts";
import type { Timeline } from "../timeline.ts";
import type { Way } from "../wire.ts";
import { type Children, type Copy, createChildren } from "./children.ts";
import { createConnection, type NodeConnection } from "./connection.ts";
import type { Instance } from "./instance.ts";
import type { Settings } from "./settings.ts";

export interface NodeUnitSpec extends NodeTraits {
  claim_policy: string;
  /** What its loop follows; another than it registered with is a planted bug. */
  loop_policy?: string;
}

/** What those who check are told. */
export interface Witness {
  passBegan(address: string): void;
  claimed(address: string, term: { id: string; generation: number }): void;
  began(address: string, copy: Copy): void;
  ended(address: string, copy: Copy): void;
}

export interface NodeUnit {
  readonly spec: NodeUnitSpec;
  readonly isAlive: boolean;
  readonly isFrozen: boolean;
  /** When it last went on after standing still. */
  readonly thawedMs: number;
  readonly connection: NodeConnection | undefined;
  readonly counts: Reconciler["counts"];
  boot(): void;
  /** kill -9: its children go with it, and its kernel closes its connection. */
  crash(): void;
  /** A crash from which it never comes back. */
  retire(): void;
  freeze(): void;
  thaw(): void;
  running(): readonly Copy[];
}

export interface NodeUnitOptions {
  spec: NodeUnitSpec;
  timeline: Timeline;
  random: () => number;
  settings: Settings;
  instances: readonly Instance[];
  latencyMs: () => number;
  isCut: (instance: string, way: Way) => boolean;
  isMissed: () => boolean;
  witness: Witness;
  /** A planted bug: the ports, made worse. */
  spoil?: (ports: LoopPorts) => LoopPorts;
  /** A planted bug: goes on without contact. */
  neverSelfStops?: boolean;
  /** Whether its lists are the part that its policy needs. */
  readsSubset?: boolean;
}

/** A node-unit: the agent's reconciler over a connection without sockets and children without processes. */
export function createNodeUnit(options: NodeUnitOptions): NodeUnit {
  const { spec, timeline, settings } = options;
  const totals = { passes: 0, claims: 0, conflicts: 0, reserves: 0, released: 0 };
  let boots = 0;
  let life: Life | undefined;
  let isFrozen = false;
  let isRetired = false;
  let thawedMs = Number.NEGATIVE_INFINITY;
  let stalled: Array<() => void> = [];

  interface Life {
    connection: NodeConnection;
    children: Children;
    reconciler: Reconciler;
    stop(): void;
  }

  function begin(): Life {
    const boot = ++boots;
    const enter = (act: () => void): void => {
      if (boots !== boot || !isBooted) return;
      if (isFrozen) stalled.push(() => enter(act));
      else act();
    };
    let isBooted = true;
    const clock: Clock = {
      monotonicMs: timeline.monotonicMs,
      after: (ms, act) => timeline.after(ms, () => enter(act)),
    };
    const { address, labels, trusted_package_regexp, custom_command } = spec;
    const traits = { address, labels, trusted_package_regexp, custom_command };
    const children = createChildren({
      clock,
      random: options.random,
      stopGraceMs: settings.stopGraceMs,
      report: (report) => reconciler.reported(report),
      began: (copy) => options.witness.began(address, copy),
      ended: (copy) => options.witness.ended(address, copy),
    });
    const connection: NodeConnection = createConnection({
      ...options,
      clock,
      enter,
      registration: {
        ...traits,
        name: address,
        version: "1",
        boot_id: `${address}-${boot}`,
        claim_policy: spec.claim_policy,
        tags: { node_unit: true },
      },
      on: {
        ready: () => reconciler.connected({}, options.readsSubset ? ["list_subset"] : []),
        replaced: () => reconciler.replaced("another process has this address"),
        members: () => reconciler.wake(),
        changed: () => reconciler.wake(),
        contact: (atMs) => reconciler.contact(atMs),
      },
    });
    const reconciler = createReconciler({
      clock,
      random: options.random,
      log() {},
      traits,
      policy: claimPolicyOf(spec.loop_policy ?? spec.claim_policy),
      intervalMs: settings.intervalMs,
      selfStopMs: options.neverSelfStops ? 1e12 : settings.selfStopMs,
      stopGraceMs: settings.stopGraceMs,
      callTimeoutMs: settings.callTimeoutMs,
      connection,
      executor: children,
      wrapPorts(ports) {
        const witnessed = witnessedBy(options.witness, ports);
        return options.spoil?.(witnessed) ?? witnessed;
      },
    });

    connection.start();
    reconciler.start();
    return {
      connection,
      children,
      reconciler,
      stop() {
        isBooted = false;
        reconciler.stop();
        void reconciler.beginStop();
        for (const name of Object.keys(totals) as (keyof typeof totals)[])
          totals[name] += reconciler.counts[name];
      },
    };
  }

  function crash(): void {
    if (!life) return;
    const ended = life;
    life = undefined;
    stalled = [];
    isFrozen = false;
    ended.stop();
    ended.connection.drop();
    ended.children.die();
  }

  function thaw(): void {
    if (!isFrozen) return;
    isFrozen = false;
    thawedMs = timeline.monotonicMs();
    for (const act of stalled.splice(0)) act();
  }

  return {
    spec,
    get isAlive() {
      return life !== undefined;
    },
    get isFrozen() {
      return isFrozen;
    },
    get thawedMs() {
      return thawedMs;
    },
    get connection() {
      return life?.connection;
    },
    get counts() {
      const now = life?.reconciler.counts;
      if (!now) return totals;
      return Object.fromEntries(
        Object.entries(totals).map(([name, count]) => [
          name,
          count + now[name as keyof typeof totals],
        ]),
      ) as unknown as Reconciler["counts"];
    },
    boot() {
      if (!isRetired) life ??= begin();
    },
    crash,
    retire() {
      isRetired = true;
      crash();
    },
    freeze() {
      if (life) isFrozen = true;
    },
    thaw,
    running: () => life?.children.running() ?? [],
  };
}

/** Reports every pass and every claim to the checks. */
const witnessedBy = (witness: Witness, ports: LoopPorts): LoopPorts => ({
  ...ports,
  members() {
    witness.passBegan(ports.me);
    return ports.members();
  },
  async claim(candidates) {
    const term = await ports.claim(candidates);
    witness.claimed(ports.me, term);
    return term;
  },
});
