import { TenureError } from "@tenure/protocol";
import { until } from "@tenure/testing/until";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { armFailpoint, disarmAll } from "../../testing/failpoints.js";
import { type JobFleet, openJobFleet } from "../../testing/job-fleet.ts";
import type { App } from "../app.ts";
import { systemClock } from "../kernel/clock.ts";

let fleet: JobFleet;
let a: App;
let b: App;

describe.each(["redis", "redis-cluster"] as const)("two instances over %s", (kind) => {
  beforeAll(async () => {
    fleet = await openJobFleet(kind, {
      instances: 2,
      env: {
        TENURE_JOB_TIMEOUT_ACK_TIMEOUT_SECONDS: "60",
        TENURE_JOB_TIMEOUT_PENDING_TIMEOUT_SECONDS: "60",
      },
    });
    [a, b] = fleet.apps as [App, App];
  });
  afterEach(() => fleet.rest());
  afterAll(() => fleet.stop());

  const read = async (jobId: string) => (await fleet.ask(a, "GET", `/jobs/${jobId}`)).body;
  const statesOf = async (jobId: string): Promise<string[]> =>
    (await read(jobId)).timeline.map(({ state }: { state: string }) => state);

  test("the smoke test: a node on A, a session on B, every state in order", async () => {
    const node = await fleet.node(a);
    const client = await fleet.session(b);
    const { job_id } = await client.accepted(client.submit({ payload: { say: "hello" } }));
    const assigned = await node.assigned();
    expect(assigned).toMatchObject({ job_id, payload: { say: "hello" } });
    node.say("job_ack", assigned);
    await until(() => client.states(job_id).includes("ACCEPTED"), { what: "ACCEPTED" });
    node.say("job_started", assigned);
    await until(() => client.states(job_id).includes("RUNNING"), { what: "RUNNING" });
    node.say("job_progress", assigned, { body: 1 });
    await client.receive("job_progress");
    node.say("job_result", assigned, { success: true, body: "done" });
    expect(await node.receive("job_result_ack")).toMatchObject({ outcome: "applied" });
    expect(await client.result({ job_id })).toMatchObject({ outcome: "succeeded", body: "done" });
    client.send({ type: "job_result_ack", job_id });
    await until(async () => (await statesOf(job_id)).length === 6, { what: "the whole timeline" });
    expect(await statesOf(job_id)).toEqual([
      "CREATED",
      "DISPATCHED",
      "ACCEPTED",
      "RUNNING",
      "FINISHED",
      "RELEASED",
    ]);
    expect(client.states(job_id)).toEqual(["DISPATCHED", "ACCEPTED", "RUNNING"]);
    expect(client.results(job_id)).toHaveLength(1);
  });

  test("the session gets each state once if the answer of the store is lost after it has written them", async () => {
    const node = await fleet.node(a);
    const client = await fleet.session(b);
    const { job_id } = await client.accepted(client.submit());
    const assigned = await node.assigned();
    armFailpoint("report.after-written", () => {
      disarmAll();
      throw new TenureError("DEPENDENCY_DOWN", { dependency: "redis", reason: "planted" });
    });
    node.say("job_ack", assigned);
    node.say("job_started", assigned);
    await until(() => client.states(job_id).includes("RUNNING"), { what: "RUNNING" });
    expect(client.states(job_id)).toEqual(["DISPATCHED", "ACCEPTED", "RUNNING"]);
  });

  test.each([
    -1, 1,
  ])("a machine whose clock is wrong by %i h, and then is set, delays no job", async (hours) => {
    let wrongByMs = hours * 3_600_000;
    const wallMs = () => systemClock.wallMs() + wrongByMs;
    const c = await fleet.start({}, { ...systemClock, wallMs });
    const [near, far] = [await fleet.node(a), await fleet.node(c)];
    near.obey(300); // long enough for an alarm that is set by the wrong time
    far.obey(300);
    const [there, here] = [await fleet.session(c), await fleet.session(b)];
    for (const byMs of [wrongByMs, 0, -wrongByMs]) {
      wrongByMs = byMs;
      for (const client of [there, here]) {
        // Two at once: one goes to each node, so one of each session goes to the other instance.
        const requests = [client.submit(), client.submit()];
        for (const request of requests)
          expect(await client.result(request)).toMatchObject({
            outcome: "succeeded",
            attempt_id: 1,
          });
      }
    }
  });

  test("a result follows its session from one instance to the other", async () => {
    const node = await fleet.node(a, { capacity: 20 });
    let client = await fleet.session(b);
    const { sessionId: session_id, resumeToken: resume_token } = client;
    const seen = new Set<string>();
    const jobs: string[] = [];
    for (let move = 0; move < 10; move++) {
      const { job_id } = await client.accepted(client.submit());
      jobs.push(job_id);
      node.finish(await node.assigned(1, job_id));
      // It leaves while the result is on its way.
      const gone = client;
      client = await fleet.session(move % 2 === 0 ? a : b, { session_id, resume_token });
      for (const { job_id: received } of gone.results()) seen.add(received);
    }
    await until(
      () => {
        for (const { job_id } of client.results()) seen.add(job_id);
        return jobs.every((job_id) => seen.has(job_id));
      },
      { what: "every result", deadlineMs: 60_000 },
    );
  });

  test("a cancel on one instance reaches the node on the other", async () => {
    const node = await fleet.node(a);
    const client = await fleet.session(b);
    const { job_id } = await client.accepted(client.submit());
    node.say("job_ack", await node.assigned());
    client.send({ type: "job_cancel", job_id });
    expect(await client.result({ job_id })).toMatchObject({ outcome: "cancelled" });
    expect(await node.receive("job_cancel")).toMatchObject({ job_id, attempt_id: 1 });
  });

  test("a slot that is freed on one instance is taken by who waits on the other", async () => {
    const node = await fleet.node(a);
    const [near, far] = [await fleet.session(a), await fleet.session(b)];
    await near.accepted(near.submit());
    const first = await node.assigned();
    const waiting = await far.accepted(far.submit());
    node.finish(first);
    const second = await node.assigned(2);
    expect(second.job_id).toBe(waiting.job_id);
    node.finish(second);
    await far.result(waiting);
  });

  test("a second session with the same request gets the result, on whichever instance each is", async () => {
    const node = await fleet.node(a);
    const [first, second] = [await fleet.session(a), await fleet.session(b)];
    const request = first.submit({ payload: 1 });
    const { job_id } = await first.accepted(request);
    second.send({ type: "job_submit", ...request });
    expect(await second.accepted(request)).toMatchObject({ job_id, duplicate: true });
    const asked = fleet.ask(b, "POST", "/jobs?wait_ms=20000", {
      ...request,
      pool: fleet.pool,
      payload: 1,
    });
    await until(async () => (await read(job_id)).state === "DISPATCHED", { what: "DISPATCHED" });
    node.finish(await node.assigned());
    expect(await first.result({ job_id })).toMatchObject({ body: "done" });
    expect(await second.result({ job_id })).toMatchObject({ body: "done" });
    expect(await asked).toMatchObject({ status: 200, body: { job_id, outcome: "succeeded" } });
  });

  test("an HTTP caller on B that waits for a job on A is answered when the job ends", async () => {
    const node = await fleet.node(a);
    const asked = fleet.ask(b, "POST", "/jobs?wait_ms=20000", {
      request_id: "over-http",
      pool: fleet.pool,
      payload: 1,
    });
    node.finish(await node.assigned());
    expect(await asked).toMatchObject({
      status: 200,
      body: { outcome: "succeeded", body: "done" },
    });
  });

  test("64 submissions of one request at both at once are one job", async () => {
    const node = await fleet.node(a, { capacity: 64 });
    const clients = [await fleet.session(a), await fleet.session(b)];
    const requests = Array.from({ length: 10 }, (_, at) => `rush-${kind}-${at}`);
    for (const request_id of requests)
      for (let at = 0; at < 64; at++) clients[at % 2]!.submit({ request_id });
    await until(
      () =>
        clients.every(
          ({ received }) => received.filter(({ type }) => type === "job_accepted").length === 320,
        ),
      { what: "all answers", deadlineMs: 60_000 },
    );
    const jobs = new Map<string, Set<string>>();
    for (const message of clients.flatMap(({ received }) => received)) {
      if (message.type !== "job_accepted") continue;
      jobs.set(message.request_id, (jobs.get(message.request_id) ?? new Set()).add(message.job_id));
    }
    expect([...jobs.values()].map((ids) => ids.size)).toEqual(requests.map(() => 1));
    // Messages between instances arrive at least once: on a slow machine a node may get an attempt twice.
    const attempts = () => new Map(node.assignments().map((one) => [attemptOf(one), one]));
    await until(() => attempts().size === 10, { what: "ten assignments" });
    for (const assigned of attempts().values()) node.finish(assigned);
    for (const request_id of requests)
      await Promise.all(clients.map((client) => client.result({ request_id })));
    expect(attempts().size).toBe(10);
  });
});

const attemptOf = ({ job_id, attempt_id }: { job_id: string; attempt_id: number }): string =>
  `${job_id} ${attempt_id}`;
