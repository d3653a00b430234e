import { setTimeout as pause } from "node:timers/promises";
import { until } from "@tenure/testing/until";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { openTestPeer } from "../../../testing/hot-stores.ts";
import { type JobFleet, type JobSession, openJobFleet } from "../../../testing/job-fleet.ts";
import type { App } from "../../app.ts";
import type { HotStore } from "../../store/hot-store.ts";
import { AGE_TOLERANCE_MS, goesFirst } from "../memory/peer-queues.ts";
import { postWaiting } from "../store/waiting-store.ts";

test("a job elsewhere goes first when its priority is higher, or the same and it is older by the tolerance", () => {
  const own = { priority: 5, createdMs: 10_000 };
  const first = (priority: number, olderByMs: number) =>
    goesFirst({ priority, createdMs: own.createdMs - olderByMs }, own);
  expect(first(6, -60_000)).toBe(true);
  expect(first(5, AGE_TOLERANCE_MS)).toBe(true);
  expect(first(5, AGE_TOLERANCE_MS - 1)).toBe(false);
  expect(first(4, 60_000)).toBe(false);
});

describe.each([
  "redis",
  "redis-cluster",
] as const)("jobs that wait at two instances over %s", (kind) => {
  let fleet: JobFleet;
  let a: App;
  let b: App;
  let hot: HotStore;
  beforeAll(async () => {
    const env = { TENURE_JOB_TIMEOUT_ACK_TIMEOUT_SECONDS: "60" };
    fleet = await openJobFleet(kind, { instances: 2, env });
    [a, b] = fleet.apps as [App, App];
    hot = await openTestPeer(kind, fleet.prefix);
  });
  afterEach(() => fleet.rest());
  afterAll(async () => {
    await fleet.stop();
    await hot.close();
  });

  /** How many jobs of the pool each instance has posted as waiting. */
  async function posted(pool: string): Promise<number[]> {
    const post = { pool, instanceId: "reader", heads: "", ttlMs: 1_000 };
    const all = [...(await postWaiting(hot, post)).values()];
    return all.map((text) =>
      (JSON.parse(text) as { h: number[][] }).h.reduce((sum, head) => sum + head[4]!, 0),
    );
  }

  const submitted = (client: JobSession, count: number, words: object = {}) =>
    Promise.all(
      Array.from({ length: count }, async () => {
        const { job_id } = await client.accepted(client.submit({ ...words }));
        return job_id;
      }),
    );

  test("20 of priority 9 at A go before 40 of priority 0 that wait at B, the node's instance", async () => {
    const { pool } = fleet;
    const node = await fleet.node(b, { capacity: 2 });
    const [far, near] = [await fleet.session(a), await fleet.session(b)];
    await submitted(near, 42);
    await node.assigned(2);
    const urgent = new Set(await submitted(far, 20, { priority: 9 }));
    await until(async () => (await posted(pool)).toSorted().join() === "20,40", {
      what: "the posts of both",
    });
    node.obey(10);
    await until(() => node.assignments().length === 62, { what: "all", deadlineMs: 20_000 });
    const places = node.assignments().flatMap(({ job_id }, at) => (urgent.has(job_id) ? [at] : []));
    // At the very end one that was refused a slot may be on its way when B looks: two slots, two at most.
    expect(places.at(-1)).toBeLessThanOrEqual(1 + 20 + 2);
    for (const job_id of urgent)
      expect(await far.result({ job_id })).toMatchObject({ outcome: "succeeded", attempt_id: 1 });
  });

  test("with the same priority the older go first, wherever they wait", async () => {
    const { pool } = fleet;
    const node = await fleet.node(b, { capacity: 2 });
    const [far, near] = [await fleet.session(a), await fleet.session(b)];
    await submitted(near, 2);
    await node.assigned(2);
    const old = new Set(await submitted(far, 10));
    await pause(AGE_TOLERANCE_MS + 100); // ages are the store's time
    await submitted(near, 10);
    await until(async () => (await posted(pool)).join() === "10,10", { what: "both posts" });
    node.obey(10);
    await until(() => node.assignments().length === 22, { what: "all", deadlineMs: 20_000 });
    const places = node.assignments().flatMap(({ job_id }, at) => (old.has(job_id) ? [at] : []));
    expect(places.at(-1)).toBeLessThanOrEqual(1 + 10 + 2);
  });

  test("the post of an instance that is gone keeps no slot from the others for long", async () => {
    const { pool } = fleet;
    const node = await fleet.node(b);
    const near = await fleet.session(b);
    const [first] = await submitted(near, 2);
    await node.assigned(1, first);
    const heads = JSON.stringify({ s: 1, h: [["", "", 9, 1, 5]] });
    await postWaiting(hot, { pool, instanceId: "ghost", heads, ttlMs: 60_000 });
    // B reads it with its next look.
    await pause(600);
    const startedMs = performance.now();
    node.finish(await node.assigned(1));
    node.finish(await node.assigned(2));
    expect(performance.now() - startedMs).toBeLessThan(3_000);
    // Passed over by now: the next one does not wait at all for it.
    const { job_id } = await near.accepted(near.submit());
    node.finish(await node.assigned(1, job_id));
    expect(await near.result({ job_id })).toMatchObject({ outcome: "succeeded" });
  });

  test("the slots of a node are seen at every instance, also when nothing waits", async () => {
    const node = await fleet.node(b, { capacity: 4 });
    const near = await fleet.session(b);
    const jobs = await submitted(near, 3);
    const seen = async () =>
      (await fleet.ask(a, "GET", `/nodes/${node.key.address}`)).body.reserved as number;
    await until(async () => (await seen()) === 3, { what: "3 slots in use, as A sees it" });
    node.obey();
    for (const job_id of jobs) await near.result({ job_id });
    await until(async () => (await seen()) === 0, { what: "all slots free, as A sees it" });
  });
});
