import {
  type ListedDeployment,
  type Member,
  type ResourceUsage,
  TenureError,
} from "@tenure/protocol";
import type { Cancel, Clock } from "@tenure/sdk";
import { describe, expect, test } from "vitest";
import { member, row } from "../../testing/rows.ts";
import { claimPolicyOf } from "../claim/policy.ts";
import type { AgentLogLine } from "../log.ts";
import { createLoop, type Loop } from "./loop.ts";
import type { LoopPorts } from "./loop-ports.ts";

// The agent's loop against a table in memory, with a simulated clock.

describe("a fleet converges", () => {
  test.each([
    { rows: 5, nodes: 2 },
    { rows: 21, nodes: 2 },
    { rows: 100, nodes: 10 },
    { rows: 400, nodes: 50 },
  ])("$nodes nodes claim $rows rows within one of each other, with few conflicts", async (size) => {
    const fleet = createFleet(size.nodes);
    await fleet.passTime(100);
    const startMs = fleet.clock.monotonicMs();
    fleet.add(Array.from({ length: size.rows }, () => row()));
    await fleet.until(() => fleet.free() === 0, 20_000);
    const counts = fleet.nodes.map((node) => fleet.owned(node.address));
    expect(Math.max(...counts) - Math.min(...counts)).toBeLessThanOrEqual(1);
    expect(fleet.total("conflicts") / size.rows).toBeLessThan(0.1);
    // A claim takes 5 ms of simulated time, one at a time at the server: four hundred claims take 2 s.
    expect(fleet.clock.monotonicMs() - startMs).toBeLessThan(4_000);
  });

  test("resource_usage spreads a batch over nodes at 10, 12 and 14 % although samples come every 5 s", async () => {
    const idle: Record<string, number> = { n0: 10, n1: 12, n2: 14 };
    let samples: Record<string, ResourceUsage> = {};
    const policies = Object.keys(idle).map(() => "resource_usage");
    const fleet = createFleet(3, { policies, usage: () => samples });
    const heartbeat = () => {
      samples = Object.fromEntries(
        Object.entries(idle).map(([address, percent]) => {
          const cpu_percent = percent + 3 * fleet.owned(address);
          return [address, { cpu_percent, memory_percent: cpu_percent, memory_mb: 0 }];
        }),
      );
      fleet.clock.after(5_000, heartbeat);
    };
    heartbeat();
    await fleet.passTime(100);
    fleet.add(Array.from({ length: 24 }, () => row()));
    await fleet.until(() => fleet.free() === 0, 30_000);
    const counts = fleet.nodes.map((node) => fleet.owned(node.address));
    expect(
      counts.every((count) => count >= 7 && count <= 9),
      counts.join("/"),
    ).toBe(true);
    expect(fleet.clock.monotonicMs()).toBeLessThan(5_000);
    // A node that is much busier than the others gets nothing, also of a later batch.
    idle.n2 = 90;
    await fleet.passTime(20_000);
    fleet.add(Array.from({ length: 6 }, () => row()));
    await fleet.until(() => fleet.free() === 0, 30_000);
    expect(fleet.owned("n2")).toBe(counts[2]);
  });

  test("the rows of a lost node are claimed by the others within less than an interval", async () => {
    const fleet = createFleet(3);
    fleet.add(Array.from({ length: 21 }, () => row({ address: "n0" })));
    await fleet.passTime(1_000);
    expect(fleet.owned("n0")).toBe(21);
    const startMs = fleet.clock.monotonicMs();
    await fleet.lose("n0");
    await fleet.until(() => fleet.free() === 0 && fleet.owned("n0") === 0, 20_000);
    expect(fleet.clock.monotonicMs() - startMs).toBeLessThan(3_000);
    expect([fleet.owned("n1"), fleet.owned("n2")].sort()).toEqual([10, 11]);
  });
});

describe("a pass", () => {
  test("claims at most one row", async () => {
    const fleet = createFleet(1);
    fleet.add([row(), row(), row()]);
    await fleet.until(() => fleet.free() === 0, 10_000);
    expect(fleet.calls("claim")).toBe(3);
    expect(fleet.total("passes")).toBeGreaterThanOrEqual(3);
  });

  test("names at most 64 candidates, on each node beginning with a different one", async () => {
    const fleet = createFleet(3);
    fleet.add(Array.from({ length: 200 }, () => row()));
    await fleet.until(() => fleet.calls("claim") >= 3, 10_000);
    const named = fleet.claims.slice(0, 3);
    expect(named.map((ids) => ids.length)).toEqual([64, 64, 64]);
    expect(new Set(named.map(([first]) => first)).size).toBe(3);
  });

  test("costs one list call when nothing has changed", async () => {
    const fleet = createFleet(2);
    fleet.add([row(), row()]);
    await fleet.until(() => fleet.free() === 0, 10_000);
    await fleet.passTime(10_000);
    const [lists, bytes] = [fleet.calls("list"), fleet.rowsSent()];
    await fleet.passTime(50_000);
    // Two nodes, an interval of 5 s with a fifth of jitter: 20 passes, one more or less each.
    expect(fleet.calls("list") - lists).toBeGreaterThanOrEqual(16);
    expect(fleet.calls("list") - lists).toBeLessThanOrEqual(26);
    expect(fleet.rowsSent()).toBe(bytes);
  });

  test("that hangs delays the next pass until it has ended", async () => {
    const fleet = createFleet(1);
    await fleet.passTime(1_000);
    fleet.hang();
    await fleet.passTime(6_000);
    const asked = fleet.calls("list");
    fleet.add([row()]);
    fleet.wake();
    await fleet.passTime(30_000);
    expect(fleet.calls("list")).toBe(asked);
    fleet.unhang();
    await fleet.until(() => fleet.free() === 0, 10_000);
  });

  test("that fails is logged once, and so is the recovery", async () => {
    const fleet = createFleet(1);
    fleet.fail(true);
    await fleet.passTime(30_000);
    fleet.fail(false);
    fleet.add([row()]);
    await fleet.until(() => fleet.free() === 0, 20_000);
    expect(fleet.logged("pass.failed")).toHaveLength(1);
    expect(fleet.logged("pass.recovered")).toHaveLength(1);
  });
});

test("a node that meets only conflicts backs off while nothing changes", async () => {
  const fleet = createFleet(2);
  await fleet.passTime(500);
  // The owner hands over one row at a time, and the first takes long: the next cannot be reserved meanwhile.
  fleet.drain("n0");
  fleet.add([row({ address: "n0" })]);
  await fleet.passTime(10_000);
  const calls = fleet.calls("reserve");
  expect(calls).toBeGreaterThan(3);
  // Without back-off it would be one call every thirty milliseconds.
  expect(calls).toBeLessThan(20);
  fleet.add([row({ address: "n0" })]);
  await fleet.passTime(200);
  expect(fleet.calls("reserve")).toBeGreaterThan(calls + 1);
});

test("R1, R13, I2: a node of policy none reads the list and makes no other call", async () => {
  const fleet = createFleet(2, { policies: ["none", "none"] });
  fleet.add([row(), row({ address: "gone" }), row({ address: "n1" })]);
  await fleet.passTime(60_000);
  expect(fleet.calls("claim") + fleet.calls("release") + fleet.calls("reserve")).toBe(0);
  expect(fleet.calls("list")).toBeGreaterThan(10);
  // R2: its executor still gets the rows it owns.
  expect(fleet.nodes[1]?.rows.map(({ address }) => address)).toEqual(["n1"]);
  expect(fleet.logged("claims.disabled")).toHaveLength(2);
});

test("a stopped node and one of policy none do not block the others", async () => {
  const fleet = createFleet(3, { policies: ["deployment_count", "none", "deployment_count"] });
  await fleet.passTime(500);
  fleet.nodes[2]?.loop.stop();
  fleet.add(Array.from({ length: 6 }, () => row()));
  await fleet.until(() => fleet.free() === 0, 120_000);
  expect(fleet.owned("n0")).toBe(6);
});

test("R11, R12: invalid rows are logged once per change, and other rows are claimed", async () => {
  const fleet = createFleet(1);
  const cron = row({ type: "cron" });
  const stray = row({ type: "daemon", address: "n0" });
  fleet.add([cron, stray, row()]);
  await fleet.until(() => fleet.free() === 0, 10_000);
  await fleet.passTime(20_000);
  fleet.add([row()]);
  await fleet.until(() => fleet.free() === 0, 10_000);
  expect(fleet.logged("deployment.skipped").map(({ details }) => details?.code)).toEqual([
    "ERR_INVALID_TYPE",
  ]);
  expect(fleet.logged("daemon.address-ignored")).toHaveLength(1);
  fleet.add([{ ...cron, type: "batch", revision: 2 }]);
  await fleet.passTime(20_000);
  expect(fleet.logged("deployment.skipped")).toHaveLength(2);
});

interface SimulatedNode {
  address: string;
  loop: Loop;
  rows: readonly ListedDeployment[];
}

const CALL_MS = 5;

/** Nodes whose server is a table in memory. A claim wakes only its owner; a free row wakes all nodes. */
function createFleet(
  size: number,
  {
    policies = [] as string[],
    usage = () => ({}),
  }: { policies?: string[]; usage?: () => Record<string, ResourceUsage> } = {},
) {
  const { clock, settle, passTime } = createVirtualClock();
  const random = seeded(7);
  const table = new Map<string, { row: ListedDeployment; at: number }>();
  const calls = new Map<string, number>();
  const lines: AgentLogLine[] = [];
  const claims: string[][] = [];
  let position = 1;
  let sent = 0;
  let hung: Array<() => void> | undefined;
  let isFailing = false;
  const members = new Map<string, Member>();
  let view = new Map(members);
  let serverFreeAtMs = 0;

  async function call<T>(method: string, answer: () => T): Promise<T> {
    calls.set(method, (calls.get(method) ?? 0) + 1);
    if (hung) await new Promise<void>((resolve) => hung?.push(resolve));
    // Claims run one after another, as in Postgres.
    const startMs = Math.max(clock.monotonicMs(), method === "claim" ? serverFreeAtMs : 0);
    if (method === "claim") serverFreeAtMs = startMs + CALL_MS;
    await new Promise<void>((resolve) =>
      clock.after(startMs + CALL_MS - clock.monotonicMs(), resolve),
    );
    if (isFailing) throw new TenureError("DEPENDENCY_DOWN", { dependency: "x", reason: "down" });
    return answer();
  }

  function put(next: ListedDeployment): void {
    const updated_at = new Date(clock.monotonicMs()).toISOString();
    table.set(next.id, { row: { ...next, updated_at }, at: ++position });
  }

  const nodes: SimulatedNode[] = Array.from({ length: size }, (_, n) => {
    const me = `n${n}`;
    const claim_policy = policies[n] ?? "deployment_count";
    members.set(me, member(me, { claim_policy }));
    const ports: LoopPorts = {
      me,
      clock,
      random,
      members: async () => ({ view: "ready", members: view }),
      list: (revision) =>
        call("list", () => {
          const from = Number(revision ?? 0);
          const items = [...table.values()]
            .filter(({ at }) => at > from)
            .map(({ row: one }) => one);
          sent += items.length;
          const answer = from === 0 ? "full" : items.length > 0 ? "delta" : "unchanged";
          return {
            revision: String(position),
            answer,
            items,
            removed: [],
            resource_usage: usage(),
          };
        }),
      release: (addresses) =>
        call("release", () => {
          const lost = [...table.values()].filter(
            ({ row: one }) => addresses.includes(one.address) && !members.has(one.address),
          );
          const released = lost.map(({ row: one }) => {
            const generation = one.generation + 1;
            put({ ...one, address: "", generation });
            return { id: one.id, generation };
          });
          if (released.length > 0) for (const node of nodes) node.loop.wake();
          return released;
        }),
      claim(candidates) {
        claims.push(candidates.map(({ id }) => id));
        return call("claim", () => {
          const term = candidates.find(({ id, generation }) => {
            const found = table.get(id)?.row;
            return found?.address === "" && found.generation === generation;
          });
          if (!term) throw new TenureError("ERR_CLAIM_CONFLICT", { candidates: candidates.length });
          const taken = table.get(term.id)?.row as ListedDeployment;
          put({ ...taken, address: me, generation: term.generation + 1 });
          return { id: term.id, generation: term.generation + 1 };
        });
      },
      reserve: () =>
        call("reserve", () => {
          throw new TenureError("ERR_CLAIM_CONFLICT", { candidates: 0 });
        }),
      changed(rows) {
        node.rows = rows;
      },
      avoids: () => false,
      log: (line) => lines.push(line),
    };
    const loop = createLoop(ports, { intervalMs: 5_000, policy: claimPolicyOf(claim_policy) });
    const node: SimulatedNode = { address: me, loop, rows: [] };
    return node;
  });
  view = new Map(members);
  for (const { loop } of nodes) loop.start();

  return {
    clock,
    nodes,
    claims,
    passTime,
    add(rows: ListedDeployment[]) {
      for (const one of rows) put(one);
      for (const { loop } of nodes) loop.wake();
    },
    drain(address: string) {
      members.set(address, { ...(members.get(address) as Member), draining: true });
      view = new Map(members);
    },
    async lose(address: string) {
      members.delete(address);
      view = new Map(members);
      await settle();
      void nodes.find((node) => node.address === address)?.loop.stop();
      for (const { loop } of nodes) loop.wake();
    },
    wake: () => {
      for (const { loop } of nodes) loop.wake();
    },
    hang() {
      hung = [];
    },
    unhang() {
      for (const resolve of hung ?? []) resolve();
      hung = undefined;
    },
    fail(failing: boolean) {
      isFailing = failing;
    },
    free: () =>
      [...table.values()].filter(({ row: one }) => one.type === "deployment" && one.address === "")
        .length,
    owned: (address: string) =>
      [...table.values()].filter(
        ({ row: one }) => one.type === "deployment" && one.address === address,
      ).length,
    calls: (method: string) => calls.get(method) ?? 0,
    rowsSent: () => sent,
    total: (count: "passes" | "conflicts") =>
      nodes.reduce((sum, { loop }) => sum + loop.counts[count], 0),
    logged: (event: string) => lines.filter((line) => line.event === event),
    async until(condition: () => boolean, limitMs: number) {
      const deadlineMs = clock.monotonicMs() + limitMs;
      while (!condition()) {
        if (clock.monotonicMs() > deadlineMs) throw new Error(`not within ${limitMs} ms`);
        await passTime(1);
      }
    },
  };
}

/** A clock that a test advances; promises are run to their end at every timer. */
function createVirtualClock() {
  let nowMs = 0;
  const timers = new Set<{ atMs: number; act: () => void }>();
  const clock: Clock = {
    monotonicMs: () => nowMs,
    after(ms, act): Cancel {
      const timer = { atMs: nowMs + ms, act };
      timers.add(timer);
      return () => timers.delete(timer);
    },
  };
  const settle = () => new Promise<void>((resolve) => setImmediate(resolve));
  async function passTime(ms: number): Promise<void> {
    const untilMs = nowMs + ms;
    for (;;) {
      await settle();
      const next = [...timers].reduce<{ atMs: number; act: () => void } | undefined>(
        (least, timer) => (!least || timer.atMs < least.atMs ? timer : least),
        undefined,
      );
      if (!next || next.atMs > untilMs) break;
      nowMs = Math.max(nowMs, next.atMs);
      timers.delete(next);
      next.act();
    }
    nowMs = untilMs;
  }
  return { clock, settle, passTime };
}

function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}
