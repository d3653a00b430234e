import { randomUUID } from "node:crypto";
import {
  type Clock,
  createNodeConnection,
  type NodeConnection,
  Session,
  Worker,
} from "@tenure/sdk";
import { createTestNodeKey } from "@tenure/testing/fleet/node-key";
import { until } from "@tenure/testing/until";
import { expect, onTestFinished, test } from "vitest";
import { type CutFleet, openCutFleet } from "../../packages/server/testing/cut-fleet.ts";

// Nodes and sessions at an instance that is cut off from its stores. Their clock runs ten times as fast: a heartbeat
// every half a second.

const SPEED = 10;
const fastClock: Clock = {
  monotonicMs: () => performance.now() * SPEED,
  after(ms, act) {
    const timer = setTimeout(act, ms / SPEED);
    return () => clearTimeout(timer);
  },
};

test("clients leave an instance that cannot reach its stores for one that can, without a gap", async () => {
  const fleet = await openCutFleet();
  const [cut, well] = fleet.instances;
  const node = join(fleet);
  await until(() => node.connection.registration?.instance_id === cut!.app.instanceId, {
    what: "the node to be at the first instance",
  });
  const worker = new Worker({
    url: well!.app.url,
    pools: ["p"],
    capacity: 2,
    run: async () => "done",
  });
  onTestFinished(() => worker.close());
  const session = new Session({ url: fleet.urls, clock: fastClock });
  onTestFinished(() => session.close());
  const done = await session.submit({ pool: "p", payload: 1 });
  expect(done).toMatchObject({ success: true });

  for (const proxy of cut!.proxies) proxy.blackHole("both");
  const after = session.submit({ pool: "p", payload: 2 });
  await until(() => node.connection.registration?.instance_id === well!.app.instanceId, {
    what: "the node to move",
  });
  expect(node.states).not.toContain("waiting");
  expect(await after).toMatchObject({ success: true });
});

test("a session leaves an instance that has lost Redis alone, with what it has open", async () => {
  const fleet = await openCutFleet();
  const [cut, well] = fleet.instances;
  const worker = new Worker({
    url: well!.app.url,
    pools: ["p"],
    capacity: 2,
    run: async () => "done",
  });
  onTestFinished(() => worker.close());
  const instances: string[] = [];
  const states: string[] = [];
  const session = new Session({
    url: fleet.urls,
    clock: fastClock,
    // Their servers' clocks are slower: neither side may take the other for silent.
    limits: { pingEveryMs: 50_000, readyWithinMs: 100_000 },
    patienceMs: 600_000,
    on: {
      ready: ({ instance_id }) => instances.push(instance_id),
      state: (state) => states.push(state),
    },
  });
  onTestFinished(() => session.close());
  const turn = session.turn();
  await turn.submit({ pool: "p", payload: 1 });
  cut!.proxies[1]!.blackHole("both");
  await turn.finalize();
  const jobs = Array.from({ length: 5 }, (_, payload) => session.submit({ pool: "p", payload }));
  expect(await Promise.all(jobs)).toHaveLength(5);
  expect(instances).toEqual([cut!.app.instanceId, well!.app.instanceId]);
  expect(states).not.toContain("waiting");
});

test("no client leaves its instance while the stores are away for all instances", async () => {
  const fleet = await openCutFleet();
  const nodes = Array.from({ length: 10 }, () => join(fleet));
  const areReady = () => nodes.every(({ connection }) => connection.lastContactMs !== undefined);
  await until(areReady, { what: "all nodes to be in contact" });
  for (const { proxies } of fleet.instances) for (const proxy of proxies) proxy.blackHole("both");
  // A minute of their clock.
  const began = fastClock.monotonicMs();
  await until(() => fastClock.monotonicMs() - began > 60_000, { what: "a minute to pass" });
  expect(nodes.flatMap(({ losses }) => losses)).toEqual([]);

  const lastMs = Math.max(...nodes.map(({ connection }) => connection.lastContactMs!));
  for (const { proxies } of fleet.instances)
    await Promise.all(proxies.map((proxy) => proxy.heal()));
  const areBack = () => nodes.every(({ connection }) => connection.lastContactMs! > lastMs);
  await until(areBack, { deadlineMs: 60_000, what: "contact again" });
});

function join({ urls }: CutFleet): {
  connection: NodeConnection;
  states: string[];
  losses: string[];
} {
  const states: string[] = [];
  const losses: string[] = [];
  const { address, signBytes } = createTestNodeKey();
  const connection = createNodeConnection({
    urls,
    key: { address, sign: async (bytes) => signBytes(bytes) },
    bootId: randomUUID(),
    clock: fastClock,
    // Their servers' clocks are slower: neither side may take the other for silent.
    limits: { pingEveryMs: 50_000, readyWithinMs: 100_000 },
    describe: () => ({ name: "moving", version: "1", tags: { node_unit: true } }),
    on: {
      state: (state) => states.push(state),
      down: (down) => losses.push(`${down.kind}: ${down.reason}`),
    },
  });
  connection.start();
  onTestFinished(() => connection.close());
  return { connection, states, losses };
}
