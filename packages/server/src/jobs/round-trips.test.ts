import type { NodeView } from "@tenure/protocol";
import { until } from "@tenure/testing/until";
import { afterEach, expect, onTestFinished, test, vi } from "vitest";
import { openBareJobs } from "../../testing/bare-jobs.ts";
import { HOT_STORES, openTestHot } from "../../testing/hot-stores.ts";
import { NODE_A, newJobId } from "../../testing/jobs.ts";
import { type Call, SKIPPED } from "../store/call.ts";
import type { RedisStore } from "../store/redis.ts";
import type { Jobs } from "./jobs.ts";
import { readJob } from "./store/job-store.ts";
import { fillSlots, hasSlot } from "./store/slot-store.ts";
import { advance } from "./store/transition-store.ts";

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
  /** The replies of all calls that depended on others. */
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
