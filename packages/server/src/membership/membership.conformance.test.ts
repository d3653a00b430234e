import { randomUUID } from "node:crypto";
import { createNodeKey } from "@tenure/testing/fleet/raw-node";
import { until } from "@tenure/testing/until";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { HOT_STORES, openTestHot, type TestHot } from "../../testing/hot-stores.ts";
import { lastSeenKeys, readSeen, takeUnseen, touch } from "./store/last-seen-store.ts";
import { closeSession, openSession, readSession, resumeSession } from "./store/session-store.ts";
import {
  dropSnapshot,
  forgetNodes,
  markDraining,
  type NodeSnapshot,
  readDraining,
  readPresence,
  SnapshotReader,
  writeSnapshot,
} from "./store/snapshot-store.ts";

describe.each(HOT_STORES)("membership in the hot state: %s", (kind) => {
  let store: TestHot;
  beforeAll(async () => {
    store = await openTestHot(kind);
  });
  afterAll(() => store.hot.close());

  const snapshot = (changes: Partial<NodeSnapshot> = {}): NodeSnapshot => ({
    v: 1,
    node_id: createNodeKey().address,
    name: "n",
    version: "1",
    instance_id: "a",
    boot_id: randomUUID(),
    epoch: 1,
    tags: {},
    labels: {},
    pools: ["p"],
    services: [],
    capacity: 4,
    draining: false,
    claim_policy: "deployment_count",
    trusted_package_regexp: "",
    custom_command: false,
    resource_usage: null,
    joined_at: new Date(0).toISOString(),
    ...changes,
  });
  const found = async (nodeId: string) =>
    (await new SnapshotReader(store.hot).read()).find(({ node_id }) => node_id === nodeId);

  test("what one instance writes of a node every instance reads", async () => {
    const node = snapshot();
    expect(await writeSnapshot(store.hot, node, 60_000)).toBe(true);
    expect(await found(node.node_id)).toEqual(node);
    expect(await readPresence(store.hot, node.node_id)).toEqual({ bootId: node.boot_id, epoch: 1 });
  });

  test("an older connection neither overwrites nor removes what a newer one wrote", async () => {
    const node = snapshot({ epoch: 7, instance_id: "new" });
    await writeSnapshot(store.hot, node, 60_000);
    expect(await writeSnapshot(store.hot, { ...node, epoch: 6, instance_id: "old" }, 60_000)).toBe(
      false,
    );
    await dropSnapshot(store.hot, { nodeId: node.node_id, epoch: 6 });
    expect(await found(node.node_id)).toEqual(node);
    await dropSnapshot(store.hot, { nodeId: node.node_id, epoch: 7 });
    expect(await found(node.node_id)).toBeUndefined();
    expect(await readPresence(store.hot, node.node_id)).toBeUndefined();
  });

  test("a node nobody renews is gone from the view when its presence has run out", async () => {
    const node = snapshot();
    await writeSnapshot(store.hot, node, 30);
    store.advance(31);
    await until(async () => !(await found(node.node_id)), { what: "the snapshot to run out" });
  });

  test("a drain of a worker is there for every instance until it is ended or the node forgotten", async () => {
    const [a, b] = [snapshot().node_id, snapshot().node_id];
    await markDraining(store.hot, a, true);
    await markDraining(store.hot, b, true);
    await markDraining(store.hot, a, false);
    expect(await readDraining(store.hot)).toEqual(new Set([b]));
    await forgetNodes(store.hot, [b]);
    expect(await readDraining(store.hot)).toEqual(new Set());
    await forgetNodes(store.hot, []);
  });

  test("whoever was not seen for long is handed to exactly one of those who clean up", async () => {
    const key = lastSeenKeys.nodes(store.hot.prefix);
    await touch(store.hot, key, ["old-1", "old-2"]);
    store.advance(1_000);
    await touch(store.hot, key, ["fresh"]);
    const taken = await Promise.all([1, 2, 3].map(() => takeUnseen(store.hot, key, 500)));
    expect(taken.flat().sort()).toEqual(["old-1", "old-2"]);
    const seen = await readSeen(store.hot, key, { offset: 0, limit: 10 });
    expect(seen.map(({ member }) => member)).toEqual(["fresh"]);
  });

  test("seen twice counts from the last time, newest first, in pages", async () => {
    const key = lastSeenKeys.sessions(store.hot.prefix);
    for (const member of ["a", "b", "c"]) {
      await touch(store.hot, key, [member]);
      store.advance(10);
    }
    await touch(store.hot, key, ["a"]);
    const members = async (offset: number) =>
      (await readSeen(store.hot, key, { offset, limit: 2 })).map(({ member }) => member);
    expect([await members(0), await members(2)]).toEqual([["a", "c"], ["b"]]);
    expect(await takeUnseen(store.hot, key, 15)).toEqual(["b"]);
  });

  test("a session is resumed with its token and in its tenant, and in no other way", async () => {
    const claim = { sessionId: randomUUID(), tenant: "t", resumeToken: "right" };
    expect(await resumeSession(store.hot, claim)).toBe("absent");
    await openSession(store.hot, claim);
    expect(await resumeSession(store.hot, claim)).toBe("resumed");
    expect(await resumeSession(store.hot, { ...claim, resumeToken: "wrong" })).toBe("refused");
    // As if it did not exist: "refused" would show that the id is taken.
    expect(await resumeSession(store.hot, { ...claim, tenant: "another" })).toBe("absent");
    expect(await readSession(store.hot, claim.sessionId)).toEqual({
      tenant: "t",
      currentTurnId: null,
    });
    await closeSession(store.hot, claim.sessionId);
    expect(await readSession(store.hot, claim.sessionId)).toBeUndefined();
    expect(await resumeSession(store.hot, claim)).toBe("absent");
  });
});
