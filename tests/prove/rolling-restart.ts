import assert from "node:assert";
import { until } from "@tenure/testing/until";
import {
  countEvents,
  HOT_KINDS,
  type HotKind,
  type Instance,
  listNodes,
  startFleet,
  startNode,
  type TestNode,
  untilReady,
} from "./fleet.ts";
import type { Proof, ProofRun } from "./proof.ts";

/** A restart of the control plane, clean or not, makes nobody lost. */
export const rollingRestart: Proof = {
  name: "rolling-restart",
  summary:
    "stop, restart and kill -9 of instances under nodes: 0 LEAVE, epochs rise, no duplicate entry",
  async run({ size, print }: ProofRun) {
    const nodeCount = size === "full" ? 30 : 9;
    for (const hot of size === "full" ? HOT_KINDS : HOT_KINDS.slice(0, 1))
      await runOn(hot, nodeCount, print);
  },
};

async function runOn(hot: HotKind, nodeCount: number, print: ProofRun["print"]): Promise<void> {
  const fleet = await startFleet(hot);
  const nodes: TestNode[] = [];
  try {
    let instances = await Promise.all([1, 2, 3].map(() => fleet.startInstance()));
    const losses: string[] = [];
    const urls = () => instances.map(({ url }) => url);
    for (let n = 0; n < nodeCount; n++) {
      // Each starts with another instance of the list.
      nodes.push(startNode([...urls().slice(n % 3), ...urls().slice(0, n % 3)]));
    }
    await untilReady(nodes);

    for (const old of [...instances]) {
      const exit = await old.stop();
      assert.equal(exit.code, 0, "a stop is a clean exit");
      const fresh = await fleet.startInstance({ port: Number(new URL(old.url).port) });
      instances = instances.map((instance) => (instance === old ? fresh : instance));
      await everybodyIsOn(instances, nodes);
    }
    await report("graceful stop and restart of three instances, one after another", instances[0]!);

    const victim = await busiest(instances);
    instances = instances.filter((instance) => instance !== victim);
    const heir = instances[0]!;
    const before = new Map(nodes.map(({ key, epochs }) => [key.address, epochs.at(-1)!]));
    const moved = (await listNodes(heir.url)).filter(({ instance_id }) => instance_id !== null);
    await victim.kill9();
    await everybodyIsOn(instances, nodes);
    const listed = await listNodes(heir.url);
    assert.equal(
      new Set(listed.map(({ node_id }) => node_id)).size,
      listed.length,
      "no node is listed twice",
    );
    assert.equal(listed.length, moved.length, "nobody is missing");
    const reconnected = listed.filter(({ node_id, epoch }) => epoch > (before.get(node_id) ?? 0));
    assert(reconnected.length > 0, "somebody had to move");
    await report(
      `kill -9 of an instance: ${reconnected.length} nodes moved, their epochs rose`,
      heir,
    );

    async function report(what: string, instance: Instance): Promise<void> {
      const [left, lost] = [
        await countEvents(instance.url, "node.left"),
        await countEvents(instance.url, "node.lost"),
      ];
      print(`${hot}: ${nodeCount} nodes, ${what}: ${left} LEAVE, ${lost} lost`);
      assert.deepEqual({ left, lost, losses }, { left: 0, lost: 0, losses: [] });
    }
  } finally {
    await Promise.all(nodes.map(({ connection }) => connection.close()));
    await fleet.stop();
  }
}

/** The instance most nodes are connected to. */
async function busiest(instances: Instance[]): Promise<Instance> {
  const listed = await listNodes(instances[0]!.url);
  const counts = await Promise.all(
    instances.map(async (instance) => {
      const id = await instanceIdOf(instance);
      return { instance, count: listed.filter(({ instance_id }) => instance_id === id).length };
    }),
  );
  return counts.sort((a, b) => b.count - a.count)[0]!.instance;
}

async function instanceIdOf({ url }: Instance): Promise<string> {
  const health = (await (await fetch(`${url}/health/ready`)).json()) as { instance_id: string };
  return health.instance_id;
}

async function everybodyIsOn(instances: Instance[], nodes: TestNode[]): Promise<void> {
  const live = new Set(await Promise.all(instances.map(instanceIdOf)));
  const settled = async () => {
    const listed = await listNodes(instances[0]!.url);
    return (
      listed.filter(({ online, instance_id }) => online && live.has(instance_id ?? "")).length ===
      nodes.length
    );
  };
  await until(settled, {
    deadlineMs: 60_000,
    everyMs: 100,
    what: "every node on a living instance",
  });
}
