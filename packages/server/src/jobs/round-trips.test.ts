import type { NodeView } from "@tenure/protocol";
import { uniqueKeyPrefix } from "@tenure/testing/stores/redis";
import { until } from "@tenure/testing/until";
import { Registry } from "prom-client";
import { afterEach, expect, onTestFinished, test, vi } from "vitest";
import { openBareJobs } from "../../testing/bare-jobs.ts";
import { HOT_STORES, openTestHot, openTestPeer } from "../../testing/hot-stores.ts";
import { NODE_A, newJobId } from "../../testing/jobs.ts";
import { readConfig } from "../config.ts";
import type { Delivery } from "../delivery/contract.ts";
import { createDelivery } from "../delivery/delivery.ts";
import { deliveryKeys } from "../delivery/delivery-keys.ts";
import { systemClock } from "../kernel/clock.ts";
import { silentLog } from "../kernel/log.ts";
import { claimOwner, ownerKeys } from "../membership/store/owner-store.ts";
import { type Call, SKIPPED } from "../store/call.ts";
import type { RedisStore } from "../store/redis.ts";
import { SCRIPTS } from "../store/script.ts";
import { deliveryMetrics, metricsIn } from "../telemetry.ts";
import type { Jobs } from "./jobs.ts";
import { UpdateRequests } from "./memory/update-requests.ts";
import { readJob } from "./store/job-store.ts";
import { fillSlots, hasSlot } from "./store/slot-store.ts";
import { advance } from "./store/transition-store.ts";
import { listUndelivered } from "./store/undelivered-store.ts";

afterEach(() => vi.restoreAllMocks());

/** A node and a session of one instance, whose frames are kept with the commands that were sent before each. */
async function openScene(kind: (typeof HOT_STORES)[number], { capacity = 4 } = {}) {
  const { hot } = await openTestHot(kind);
  onTestFinished(() => hot.close());
  let commands = () => 0;
  if (kind !== "memory") {
    const sent = vi.spyOn((hot as RedisStore).client, "evalsha");
    commands = () => sent.mock.calls.length;
  }
  const frames: { to: "node" | "session"; commands: number; message: Frame }[] = [];
  const linkTo = (to: "node" | "session") => ({
    send: (message: object) =>
      void frames.push({ to, commands: commands(), message: message as Frame }),
    sendText: (text: string) =>
      void frames.push({ to, commands: commands(), message: JSON.parse(text) as Frame }),
    unsentBytes: () => 0,
    whenDrained: () => {},
  });
  const jobs = openBareJobs(hot);
  const node = { nodeId: NODE_A, epoch: 1, link: linkTo("node") } as never;
  const session = { sessionId: "s1", tenant: "default", link: linkTo("session") } as never;
  await jobs.nodes.joined(node, []);
  await jobs.sessions.joined(session, { turnPauseMs: undefined });
  jobs.fleetSeen([viewOf({ capacity })]);
  const find = async (type: string, count = 1) => {
    const found = () => frames.filter(({ message }) => message.type === type);
    await until(() => found().length >= count, { what: `${count} × ${type}` });
    return found();
  };
  const guarded = vi.spyOn(hot, "startIf");
  /** Replies of the calls with a condition, in order, without those that list new jobs. */
  const conditional = () => {
    const own = guarded.mock.results.filter(
      (_, at) => guarded.mock.calls[at]![1].name !== "add-recent",
    );
    return Promise.all(own.map(({ value }) => (value as Call).reply));
  };
  return { hot, jobs, node, session, frames, commands, find, conditional };
}

const viewOf = ({ capacity }: { capacity: number }): NodeView =>
  ({
    ...{ node_id: NODE_A, name: "n", instance_id: "i1", epoch: 1, capacity, stuck: 0 },
    ...{ online: true, draining: false, pools: ["p"], services: [], tenants: ["default"] },
  }) as unknown as NodeView;

interface Frame {
  type: string;
  job_id: string;
  attempt_id: number;
}

let requests = 0;
function submit(jobs: Jobs, session: never, words: object = {}): void {
  const payload = { text: "{}", isCompact: true };
  const request_id = `r${requests++}-${Math.random()}`;
  jobs.sessions.submit(session, {
    type: "job_submit",
    request_id,
    pool: "p",
    payload,
    ...words,
  } as never);
}

test("with a free node here, the worker has the job after one round trip", async () => {
  const { jobs, session, commands, find, frames } = await openScene("redis");
  submit(jobs, session);
  await find("job_assign"); // caches the scripts
  const before = commands();
  frames.length = 0;
  submit(jobs, session);
  const [assign] = await find("job_assign");
  expect(assign!.commands - before).toBe(1);
  expect(frames.map(({ message }) => message.type).slice(0, 2)).toEqual([
    "job_accepted",
    "job_update",
  ]);
});

test("jobs of one tick share the calls of their entry and their slots", async () => {
  const { jobs, session, commands, find, frames } = await openScene("redis", { capacity: 200 });
  submit(jobs, session);
  await find("job_assign");
  const before = commands();
  frames.length = 0;
  for (let count = 0; count < 100; count++) submit(jobs, session);
  const assigned = await find("job_assign", 100);
  expect(assigned.at(-1)!.commands - before).toBe(1);
});

/** A session at one instance and a node at another, with the messages between them. */
async function openPair(kind: (typeof PAIRS)[number]) {
  const prefix = uniqueKeyPrefix();
  const frames: Frame[] = [];
  /** What each command to Redis ran: a script, or several of one tick. */
  const trips: string[] = [];
  const open = async (instanceId: string) => {
    const hot = (await openTestPeer(kind, prefix)) as RedisStore;
    const evaluate = hot.client.evalsha.bind(hot.client) as (...args: unknown[]) => never;
    vi.spyOn(hot.client, "evalsha").mockImplementation((sha, ...args) => {
      trips.push(SCRIPTS.find((script) => script.sha === sha)?.name ?? "several");
      return evaluate(sha, ...args);
    });
    const delivery: Delivery = createDelivery({
      ...{ store: hot, instanceId, clock: systemClock, log: silentLog },
      settings: readConfig({ env: {} }).scheduler.phase2,
      telemetry: deliveryMetrics(metricsIn(new Registry())),
      receive: (message) => jobs.receive(message),
      route: (message) => jobs.route(message),
    });
    const announced = vi.spyOn(delivery, "sendIf");
    const jobs: Jobs = openBareJobs(hot, { instanceId, delivery });
    delivery.start();
    onTestFinished(async () => {
      await delivery.stop();
      await hot.close();
    });
    return { hot, jobs, announced };
  };
  const [a, b] = [await open("i1"), await open("i2")];
  const link = {
    send: (message: object) => void frames.push(message as Frame),
    sendText: (text: string) => void frames.push(JSON.parse(text) as Frame),
    unsentBytes: () => 0,
    whenDrained: () => {},
    updates: new UpdateRequests(), // as the SDK: it asks for no states
  };
  const node = { nodeId: NODE_A, epoch: 1, link } as never;
  const session = { sessionId: "s1", tenant: "default", link } as never;
  const own = (key: string, instanceId: string) =>
    claimOwner(a.hot, { key, owner: { instanceId, epoch: 1 }, ttlMs: 60_000 });
  await own(ownerKeys.session(prefix, "s1"), "i1");
  await own(ownerKeys.node(prefix, NODE_A), "i2");
  await b.jobs.nodes.joined(node, []);
  await a.jobs.sessions.joined(session, { turnPauseMs: undefined });
  for (const { jobs } of [a, b])
    jobs.fleetSeen([{ ...viewOf({ capacity: 4 }), instance_id: "i2" }]);
  const find = async (type: string) => {
    const found = () => frames.find((frame) => frame.type === type);
    await until(() => found() !== undefined, { what: type });
    return found()!;
  };
  return { a, b, node, session, frames, trips, find, own };
}

test("on two instances the session has the result after five round trips", async () => {
  const { a, b, node, session, frames, trips, find } = await openPair("redis");
  const run = async () => {
    frames.length = 0;
    trips.length = 0;
    submit(a.jobs, session);
    const { job_id, attempt_id } = await find("job_assign");
    const about = { job_id, attempt_id, success: true, body: { text: "1", isCompact: true } };
    b.jobs.nodes.reported(node, { type: "job_result", ...about } as never);
    await find("job_result");
    const counted = [...trips];
    a.jobs.sessions.resultAcked(session, job_id);
    return counted;
  };
  await run(); // caches the scripts, opens the inboxes

  const isOver = () => trips.includes("leave-due") && trips.includes("end-due");
  await until(isOver, { what: "the end of the first job" });
  // The message is acknowledged when it has taken effect: no step waits for that.
  const steps = (await run()).filter((ran) => ran !== "acknowledge-message");
  expect(steps.length, steps.join(", ")).toBeLessThanOrEqual(5);
});

const PAIRS = ["redis", "redis-cluster"] as const;

test.each(
  PAIRS,
)("on %s the result of a session that is at a third instance is announced there", async (kind) => {
  const { a, b, node, session, find, own } = await openPair(kind);
  submit(a.jobs, session);
  const { job_id, attempt_id } = await find("job_assign");
  await own(ownerKeys.session(a.hot.prefix, "s1"), "i3");
  const about = { job_id, attempt_id, success: true, body: { text: "1", isCompact: true } };
  b.jobs.nodes.reported(node, { type: "job_result", ...about } as never);
  const inboxOf = (instanceId: string) =>
    a.hot.client.xrange(deliveryKeys.inbox(a.hot.prefix, instanceId), "-", "+");
  await until(async () => (await inboxOf("i3")).length === 1, { what: "a message at i3" });
  expect(await inboxOf("i1")).toEqual([]);
  expect(await listUndelivered(a.hot, "s1", 10)).toEqual([job_id]);
});

test.each(PAIRS)("on %s a result that is not applied is not announced", async (kind) => {
  const { a, b, node, session, frames, find } = await openPair(kind);
  submit(a.jobs, session);
  const { job_id, attempt_id } = await find("job_assign");
  const at = { jobId: job_id, attemptId: attempt_id, instanceId: "i3" };
  await advance(a.hot, { ...at, steps: [{ event: "give_up", outcome: "cancelled" }] });
  const about = { job_id, attempt_id, success: true, body: { text: "1", isCompact: true } };
  b.jobs.nodes.reported(node, { type: "job_result", ...about } as never);
  await find("job_result_ack");
  expect(await Promise.all(b.announced.mock.results.map(({ value }) => value))).toEqual([
    { outcome: "skipped" },
  ]);
  expect(await listUndelivered(a.hot, "s1", 10)).toEqual([]);
  expect(frames.map(({ type }) => type)).not.toContain("job_result");
});

/** The job runs, and its worker has reported that. */
async function openRunning(kind: (typeof HOT_STORES)[number]) {
  const scene = await openScene(kind);
  submit(scene.jobs, scene.session);
  const [assign] = await scene.find("job_assign");
  const { job_id, attempt_id } = assign!.message;
  const report = (type: string, words: object = {}) =>
    scene.jobs.nodes.reported(scene.node, { type, job_id, attempt_id, ...words } as never);
  const result = () =>
    report("job_result", { success: true, body: { text: "1", isCompact: true } });
  report("job_ack");
  report("job_started");
  await until(async () => (await readJob(scene.hot, job_id))!.state === "RUNNING", {
    what: "a running job",
  });
  return { ...scene, jobId: job_id, report, result };
}

test("a result of a worker here frees the slot and writes RELEASED in one round trip", async () => {
  const warm = await openRunning("redis");
  warm.result();
  await warm.find("job_result");
  const { hot, result, find, commands, jobId } = await openRunning("redis");
  const before = commands();
  result();
  const [sent] = await find("job_result");
  expect(sent!.commands - before).toBe(1);
  expect((await readJob(hot, jobId))!.state).toBe("RELEASED");
  expect(await hasSlot(hot, NODE_A, { jobId, attemptId: 1 })).toBe(false);
});

test.each(HOT_STORES)("on %s a result that is not applied frees no slot", async (kind) => {
  const { hot, result, find, jobId, conditional } = await openRunning(kind);
  const at = { jobId, attemptId: 1, instanceId: "i2" };
  await advance(hot, { ...at, steps: [{ event: "give_up", outcome: "cancelled" }] });
  result();
  await find("job_result_ack");
  expect((await conditional()).slice(1)).toEqual([SKIPPED, SKIPPED, SKIPPED]);
  expect((await readJob(hot, jobId))!.state).toBe("FINISHED");
  expect(await hasSlot(hot, NODE_A, { jobId, attemptId: 1 })).toBe(true);
});

test.each(HOT_STORES)("on %s results of one tick free their own slots", async (kind) => {
  const scene = await openScene(kind, { capacity: 10 });
  const { hot, jobs, node, session, find } = scene;
  for (let count = 0; count < 4; count++) submit(jobs, session);
  const assigned = (await find("job_assign", 4)).map(({ message }) => message);
  // Another instance has ended the second.
  const over = assigned[1]!;
  const at = { jobId: over.job_id, attemptId: 1, instanceId: "i2" };
  await advance(hot, { ...at, steps: [{ event: "give_up", outcome: "cancelled" }] });
  const body = { text: "1", isCompact: true };
  for (const { job_id, attempt_id } of assigned.slice(0, 3))
    jobs.nodes.reported(node, {
      type: "job_result",
      job_id,
      attempt_id,
      success: true,
      body,
    } as never);
  await find("job_result", 2);
  const held = () =>
    Promise.all(
      assigned.map(({ job_id }) => hasSlot(hot, NODE_A, { jobId: job_id, attemptId: 1 })),
    );
  const isFree = async () => (await held()).filter(Boolean).length === 2;
  await until(isFree, { what: "two free slots" });
  expect(await held()).toEqual([false, true, false, true]);
});

test.each(HOT_STORES)("on %s a job whose slot is refused stays CREATED", async (kind) => {
  const { hot, jobs, session, find, conditional } = await openScene(kind, { capacity: 1 });
  // Another instance has the slot, which this one does not know yet.
  const wanted = [{ jobId: newJobId(), attemptId: 1 }];
  await fillSlots(hot, { nodeId: NODE_A, capacity: 1, ttlMs: 60_000, wanted });
  submit(jobs, session);
  const [accepted] = await find("job_accepted");
  expect(await conditional()).toEqual([SKIPPED]);
  expect((await readJob(hot, accepted!.message.job_id))!.state).toBe("CREATED");
});

test.each(
  HOT_STORES,
)("on %s a request that has a job already leaves that job and no slot", async (kind) => {
  const { hot, jobs, session, find, frames, conditional } = await openScene(kind);
  submit(jobs, session, { request_id: `same-${kind}` });
  const [first] = await find("job_assign");
  submit(jobs, session, { request_id: `same-${kind}` });
  const accepted = await find("job_accepted", 2);
  expect(accepted.map(({ message }) => message.job_id)).toEqual([
    first!.message.job_id,
    first!.message.job_id,
  ]);
  expect(frames.filter(({ message }) => message.type === "job_assign")).toHaveLength(1);
  expect((await conditional()).map((reply) => reply === SKIPPED)).toEqual([false, true]);
  await until(async () => jobs.reservedOf(NODE_A) === 1, {
    what: "the slot of the duplicate to be free",
  });
  expect(await hasSlot(hot, NODE_A, { jobId: first!.message.job_id, attemptId: 1 })).toBe(true);
});
