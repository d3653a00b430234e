import type { NodeView, SessionView } from "@tenure/protocol";
import { connectRawNode, type RawNode } from "@tenure/testing/fleet/raw-node";
import { connectRawSession } from "@tenure/testing/fleet/raw-session";
import { uniqueKeyPrefix } from "@tenure/testing/stores/redis";
import { until } from "@tenure/testing/until";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openServer } from "../../testing/databases.ts";
import { HOT_STORES } from "../../testing/hot-stores.ts";
import { startTestApp } from "../../testing/test-app.ts";
import type { App } from "../app.ts";
import { sql } from "../store/sql.ts";

// Two instances over one Postgres. With the hot state in memory they share node-units only; workers and
// sessions then stay where they are connected, and the tests of those mean nothing there.

describe.each(HOT_STORES)("a fleet on two instances: %s", (hot) => {
  let database: Awaited<ReturnType<typeof openServer>>;
  let a: App;
  let b: App;
  beforeAll(async () => {
    database = await openServer();
    const options = { postgresUri: database.uri, hot, prefix: uniqueKeyPrefix() };
    [a, b] = await Promise.all([startTestApp(options), startTestApp(options)]);
  });
  afterAll(async () => {
    await Promise.all([a.stop(), b.stop()]);
    await database.close();
  });

  const eventsOf = async (address: string): Promise<string[]> => {
    const { rows } = await database.db.query<{ event: string }>(
      sql`select event from event where subject = ${address} order by id`,
    );
    return rows.map(({ event }) => event);
  };

  test("both instances list a node-unit, and both notify the other nodes of it", async () => {
    const watcher = await connectRawNode({ url: b.url });
    await watcher.register();
    const node = await connectRawNode({ url: a.url });
    await node.register({ name: "alpha", labels: { zone: "x" } });
    for (const app of [a, b]) {
      const seen = await nodeSeenBy(app, node.key.address, ({ online }) => online);
      expect(seen).toMatchObject({
        name: "alpha",
        instance_id: a.instanceId,
        labels: { zone: "x" },
        node_unit: true,
      });
    }
    const joined = await watcher.receive(
      "host_event",
      (event) => event.new?.address === node.key.address,
    );
    expect(joined).toMatchObject({ event: "TERMINAL_CHANGE", new: { name: "alpha" } });
    expect(joined.old).toBeUndefined();

    await node.close();
    const left = await watcher.receive(
      "host_event",
      (event) => event.old?.address === node.key.address && !event.new,
    );
    expect(left.seq).toBeGreaterThan(joined.seq);
    await nodeSeenBy(b, node.key.address, ({ online, left_at }) => !online && left_at !== null);
    expect(await eventsOf(node.key.address)).toEqual(["node.joined", "node.left"]);
    await watcher.close();
  });

  test("the numbers of host events have no gap, and member.list gives the state at a number", async () => {
    const watcher = await connectRawNode({ url: a.url });
    await watcher.register();
    for (let n = 0; n < 5; n++) {
      const passer = await connectRawNode({ url: b.url });
      await passer.register();
      await watcher.receive("host_event", (event) => event.new?.address === passer.key.address);
      await passer.close();
      await watcher.receive(
        "host_event",
        (event) => event.old?.address === passer.key.address && !event.new,
      );
    }
    watcher.send({ type: "request", id: "list", method: "member.list", params: {} });
    const { result } = await watcher.receive("response", ({ id }) => id === "list");
    const events = watcher.received.filter((message) => message.type === "host_event");
    const first = events[0]!.seq;
    expect(events.slice(1).map(({ seq }) => seq)).toEqual(
      events.slice(1).map((_, index) => first + 1 + index),
    );
    expect(result).toMatchObject({ seq: events.at(-1)!.seq });
    await watcher.close();
  });

  test("a node that moves to the other instance is updated, not lost, and its epoch rises", async () => {
    const watcher = await connectRawNode({ url: a.url });
    await watcher.register();
    const before = await connectRawNode({ url: a.url });
    const first = await before.register();
    await watcher.receive("host_event", (event) => event.new?.address === before.key.address);
    const after = await connectRawNode({ url: b.url, key: before.key, bootId: before.bootId });
    const second = await after.register();
    expect(second.epoch).toBeGreaterThan(first.epoch);
    expect(await before.closed).toMatchObject({ code: 4409 });
    const moved = await watcher.receive("host_event", (event) => event.new?.epoch === second.epoch);
    expect(moved.old).toMatchObject({ epoch: first.epoch });
    expect((await after.heartbeat(1)).presence_ok).toBe(true);
    expect(await eventsOf(before.key.address)).toEqual(["node.joined"]);
    await after.close();
    await watcher.close();
  });

  test("a drain asked of one instance reaches a node on the other, and its end too", async () => {
    const node = await connectRawNode({ url: a.url });
    await node.register({ name: "to-drain" });
    await nodeSeenBy(b, node.key.address, ({ online }) => online);
    const drained = await post(b, `/nodes/${node.key.address}/drain`);
    expect(drained).toMatchObject({ draining: true });
    await node.receive("node_control", ({ command }) => command === "drain");
    await nodeSeenBy(a, node.key.address, ({ draining }) => draining);
    await post(b, `/nodes/to-drain/resume`);
    await node.receive("node_control", ({ command }) => command === "resume");
    await node.close();
  });

  test("unknown nodes and ambiguous names are clear errors", async () => {
    const twins = await Promise.all([1, 2].map(() => connectRawNode({ url: a.url })));
    await Promise.all(twins.map((twin) => twin.register({ name: "twin" })));
    for (const twin of twins) await nodeSeenBy(a, twin.key.address, ({ online }) => online);
    expect(await post(a, "/nodes/nobody/drain")).toMatchObject({ error: { code: "NOT_FOUND" } });
    expect(await post(a, "/nodes/twin/drain")).toMatchObject({ error: { code: "CONFLICT" } });
    await Promise.all(twins.map((twin) => twin.close()));
  });

  if (hot === "memory") return;
  describe("with a shared hot store", () => {
    test("both instances know a worker and its pools, and either drains it", async () => {
      const worker = await connectRawNode({ url: a.url });
      await worker.register({ tags: {}, pools: ["asr"], capacity: 3 });
      const seen = await nodeSeenBy(b, worker.key.address, ({ online }) => online);
      expect(seen).toMatchObject({ node_unit: false, pools: ["asr"], capacity: 3 });
      await post(b, `/nodes/${worker.key.address}/drain`);
      await worker.receive("node_control", ({ command }) => command === "drain");
      await worker.close();
      const goneFromB = async () =>
        !(await nodesOf(b)).some(({ node_id }) => node_id === worker.key.address);
      await until(goneFromB, { what: "the worker to be gone" });
    });

    test("the same key from a second worker process on the other instance is refused", async () => {
      const worker = await connectRawNode({ url: a.url });
      await worker.register({ tags: {} });
      const twin = await connectRawNode({ url: b.url, key: worker.key });
      void twin.register({ tags: {} }).catch(() => {});
      expect(await twin.closed).toMatchObject({ code: 4409 });
      await worker.close();
    });

    test("a session resumes on the other instance, and its owner moves with it", async () => {
      const session = await connectRawSession({ url: a.url });
      const { session_id, resume_token } = await session.init();
      const back = await connectRawSession({ url: b.url });
      expect((await back.init({ session_id, resume_token })).session_id).toBe(session_id);
      const view = await sessionSeenBy(
        a,
        session_id,
        ({ instance_id }) => instance_id === b.instanceId,
      );
      expect(view).toMatchObject({ online: true, tenant: "default" });
      await session.close(); // the late close of the old connection
      expect(await sessionSeenBy(a, session_id, () => true)).toMatchObject({
        instance_id: b.instanceId,
      });
      await back.close();
      await sessionSeenBy(a, session_id, ({ online }) => !online);
    });
  });
});

test("with node_snapshot.enabled = false an instance neither publishes its workers nor reads others'", async () => {
  const database = await openServer();
  const options = { postgresUri: database.uri, hot: "redis" as const, prefix: uniqueKeyPrefix() };
  const env = { TENURE_SCHEDULER_PHASE2_NODE_SNAPSHOT_ENABLED: "false" };
  const [silent, open] = await Promise.all([
    startTestApp({ ...options, env }),
    startTestApp(options),
  ]);
  const [onSilent, onOpen] = [
    await connectRawNode({ url: silent.url }),
    await connectRawNode({ url: open.url }),
  ];
  for (const worker of [onSilent, onOpen]) await worker.register({ tags: {}, pools: ["p"] });
  const unit = await connectRawNode({ url: open.url });
  await unit.register();
  // A node-unit is in Postgres: when both know it, each has had a round after the workers came.
  for (const app of [silent, open]) await nodeSeenBy(app, unit.key.address, ({ online }) => online);
  const workersOf = async (app: App) =>
    (await nodesOf(app)).flatMap((node) => (node.node_unit ? [] : [node.node_id]));
  expect(await workersOf(silent)).toEqual([onSilent.key.address]);
  expect(await workersOf(open)).toEqual([onOpen.key.address]);
  for (const node of [onSilent, onOpen, unit]) await node.close();
  await Promise.all([silent.stop(), open.stop()]);
  await database.close();
});

describe("I11: our own stop is no LEAVE", () => {
  test("a stopping instance sends its nodes to the other, and no node is lost", async () => {
    const database = await openServer();
    const options = { postgresUri: database.uri, hot: "redis" as const, prefix: uniqueKeyPrefix() };
    const [a, b] = await Promise.all([startTestApp(options), startTestApp(options)]);
    const watcher = await connectRawNode({ url: b.url });
    await watcher.register();
    const nodes: RawNode[] = [];
    for (let n = 0; n < 5; n++) nodes.push(await connectRawNode({ url: a.url }));
    for (const node of nodes) await node.register();
    await until(async () => (await nodesOf(b)).filter(({ online }) => online).length === 6, {
      what: "all six",
    });

    await a.stop();
    for (const node of nodes) {
      expect(await node.receive("go_away")).toMatchObject({ urls: [b.url] });
      expect(await node.closed).toMatchObject({ code: 1012 });
      const back = await connectRawNode({ url: b.url, key: node.key, bootId: node.bootId });
      await back.register();
    }
    const here = async () =>
      (await nodesOf(b)).every(({ instance_id }) => instance_id === b.instanceId);
    await until(here, { what: "every node on the other instance" });
    const lost = watcher.received.filter(
      (message) => message.type === "host_event" && message.old && !message.new,
    );
    expect(lost).toEqual([]);
    const { rows } = await database.db.query(
      sql`select event from event where event in ('node.left', 'node.lost')`,
    );
    expect(rows).toEqual([]);
    await b.stop();
    await database.close();
  });
});

async function nodesOf(app: App): Promise<NodeView[]> {
  const response = await fetch(`${app.url}/api/v1/nodes?limit=500`);
  return ((await response.json()) as { items: NodeView[] }).items;
}

function nodeSeenBy(
  app: App,
  address: string,
  fits: (node: NodeView) => boolean,
): Promise<NodeView> {
  const find = async () =>
    (await nodesOf(app)).find((node) => node.node_id === address && fits(node));
  return until(find, { what: `node ${address} as expected on ${app.instanceId}` });
}

function sessionSeenBy(
  app: App,
  id: string,
  fits: (session: SessionView) => boolean,
): Promise<SessionView> {
  const find = async () => {
    const response = await fetch(`${app.url}/api/v1/sessions`);
    const { items } = (await response.json()) as { items: SessionView[] };
    return items.find((session) => session.session_id === id && fits(session));
  };
  return until(find, { what: `session ${id} as expected on ${app.instanceId}` });
}

async function post(app: App, path: string): Promise<unknown> {
  const headers = { "content-type": "application/json" };
  return (await fetch(`${app.url}/api/v1${path}`, { method: "POST", headers })).json();
}

// Long enough that a busy machine is still within it when the node registers.
const SETTLING_SECONDS = 20;

test("a view that settles by time alone is sent to the nodes that wait for it", async () => {
  const database = await openServer();
  const env = {
    TENURE_SCHEDULER_PHASE2_NODE_SNAPSHOT_PRESENCE_TTL_SECONDS: String(SETTLING_SECONDS),
  };
  const former = await startTestApp({ postgresUri: database.uri, env });
  const gone = await connectRawNode({ url: former.url });
  await gone.register();
  await gone.close();
  const hasLeft = async () =>
    (await database.db.query(sql`select from node_unit where not online`)).rows.length === 1;
  await until(hasLeft, { what: "the node to have left" });
  await former.stop();
  // It knows of a node that was here a moment ago and is not back, so its list may not be complete.
  const app = await startTestApp({ postgresUri: database.uri, env });
  const node = await connectRawNode({ url: app.url });
  await node.register();
  expect(await node.receive("host_event")).toMatchObject({ event: "INIT", view: "settling" });
  let seq = 0;
  const isTold = async () => {
    await node.heartbeat(++seq); // or its own loss would be the change that tells
    return node.received.some((event) => event.type === "host_event" && event.view === "ready");
  };
  await until(isTold, {
    everyMs: 1_000,
    deadlineMs: 3_000 * SETTLING_SECONDS,
    what: "the view to be ready",
  });
  await Promise.all([node.close(), app.stop()]);
  await database.close();
}, 120_000);
