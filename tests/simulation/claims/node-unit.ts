import type { DeploymentReport, ListedDeployment, NodeTraits, TenureError } from "@tenure/protocol";
import { matchWhole } from "@tenure/protocol/pattern";
import type { Clock } from "@tenure/sdk";
import { wantedHere } from "../../../packages/agent/src/claim/desired-state.ts";
import { claimPolicyOf } from "../../../packages/agent/src/claim/policy.ts";
import { createContactWatch } from "../../../packages/agent/src/contact-watchdog.ts";
import { createLoop, type Loop } from "../../../packages/agent/src/loop/loop.ts";
import type { LoopPorts } from "../../../packages/agent/src/loop/loop-ports.ts";
import { createReports } from "../../../packages/agent/src/reports.ts";
import { createMembersLook, serverPorts } from "../../../packages/agent/src/server-ports.ts";
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
  readonly counts: Loop["counts"];
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
}

const AVOID_MS = 60_000;

/** A node-unit: the parts of the agent, put together as `agent.ts` does, over a connection without sockets. */
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
    loop: Loop;
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
    const { random } = options;
    const { address, labels, trusted_package_regexp, custom_command } = spec;
    const traits = { address, labels, trusted_package_regexp, custom_command };
    const avoidedUntilMs = new Map<string, number>();
    let rows: readonly ListedDeployment[] = [];
    let refusals = 0;

    const reports = createReports({
      clock,
      send: (report) => connection.call("deployment.report", report),
      refused,
    });
    const children = createChildren({
      clock,
      random,
      stopGraceMs: settings.stopGraceMs,
      report: reported,
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
        ready() {
          children.reportAll();
          reports.connected();
          loop.wake();
        },
        replaced: () => watch.replaced("another process answers under this address"),
        members: () => loop.wake(),
        changed: () => loop.wake(),
        contact: (atMs) => watch.contact(atMs),
      },
    });
    const look = createMembersLook(connection);
    const ports = serverPorts({
      connection,
      look: () => {
        options.witness.passBegan(address);
        return look();
      },
      me: address,
      clock,
      random,
      changed(now, isFresh) {
        rows = now;
        children.want(wantedHere(rows, traits, matchWhole));
        if (isFresh && watch.isSuspended) void confirm();
      },
      avoids({ id }) {
        return (avoidedUntilMs.get(id) ?? 0) > clock.monotonicMs();
      },
      log() {},
    });
    const witnessed: LoopPorts = {
      ...ports,
      async claim(candidates) {
        const term = await ports.claim(candidates);
        options.witness.claimed(address, term);
        return term;
      },
    };
    const loop = createLoop(options.spoil?.(witnessed) ?? witnessed, {
      intervalMs: settings.intervalMs,
      policy: claimPolicyOf(spec.loop_policy ?? spec.claim_policy),
    });
    const watch = createContactWatch({
      clock,
      selfStopMs: options.neverSelfStops ? 1e12 : settings.selfStopMs,
      suspend: () => children.suspend(),
      nextStopMs: () => undefined,
      askForList,
      resume: () => children.resume(),
    });

    async function confirm(): Promise<void> {
      refusals = 0;
      children.reportAll();
      await reports.settled(settings.callTimeoutMs);
      if (refusals > 0) askForList();
      else watch.refreshed();
    }

    function askForList(): void {
      loop.distrust();
      loop.wake();
    }

    function reported(report: DeploymentReport): void {
      const row = rows.find(({ id }) => id === report.deployment_id);
      const isNext = row?.moving_to === address && row.address !== address;
      if (isNext && report.state === "failed")
        avoidedUntilMs.set(report.deployment_id, clock.monotonicMs() + AVOID_MS);
      reports.put(report);
    }

    function refused({ deployment_id, generation }: DeploymentReport, _: TenureError): void {
      const isOurs = rows.some((row) => row.id === deployment_id && row.generation === generation);
      if (!isOurs) return;
      refusals += 1;
      askForList();
    }

    watch.start();
    connection.start();
    loop.start();
    return {
      connection,
      children,
      loop,
      stop() {
        isBooted = false;
        reports.stop();
        watch.stop();
        void loop.stop();
        for (const name of Object.keys(totals) as (keyof typeof totals)[])
          totals[name] += loop.counts[name];
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
      const now = life?.loop.counts;
      if (!now) return totals;
      return Object.fromEntries(
        Object.entries(totals).map(([name, count]) => [
          name,
          count + now[name as keyof typeof totals],
        ]),
      ) as unknown as Loop["counts"];
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
