import { randomUUID } from "node:crypto";
import { until } from "@tenure/testing/until";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { HOT_STORES } from "../../testing/hot-stores.ts";
import { type JobFleet, type JobNode, openJobFleet } from "../../testing/job-fleet.ts";
import type { App } from "../app.ts";

let fleet: JobFleet;
let app: App;

/** A slow machine must not look like a slow node. */
const PATIENT = {
  TENURE_JOB_TIMEOUT_ACK_TIMEOUT_SECONDS: "60",
  TENURE_JOB_TIMEOUT_PENDING_TIMEOUT_SECONDS: "60",
};

const read = async (jobId: string) => (await fleet.ask(app, "GET", `/jobs/${jobId}`)).body;
const released = (jobId: string) =>
  until(async () => (await read(jobId)).state === "RELEASED", { what: "RELEASED" });
const freed = (nodeId: string) =>
  until(async () => (await fleet.ask(app, "GET", `/nodes/${nodeId}`)).body.reserved === 0, {
    what: "free slots",
  });

describe.each(HOT_STORES)("jobs of one instance, on %s", (kind) => {
  beforeAll(async () => {
    fleet = await openJobFleet(kind, {
      env: { ...PATIENT, TENURE_JOBS_QUEUE_MAX: "3" },
    });
    app = fleet.apps[0]!;
  });
  afterEach(() => fleet.rest());
  afterAll(() => fleet.stop());

  test("goes from a session to a node and back, through every state", async () => {
    const node = await fleet.node(app);
    const client = await fleet.session(app);
    const request = client.submit({ payload: { say: "hello" }, trace_id: "t-1", priority: 3 });
    const { job_id, duplicate } = await client.accepted(request);
    expect(duplicate).toBe(false);
    const assigned = await node.assigned();
    expect(assigned).toMatchObject({
      job_id,
      attempt_id: 1,
      request_id: request.request_id,
      session_id: client.sessionId,
      pool: fleet.pool,
      payload: { say: "hello" },
      timeout_ms: 30_000,
      trace_id: "t-1",
    });
    node.say("job_ack", assigned);
    await until(() => client.states(job_id).includes("ACCEPTED"), { what: "ACCEPTED" });
    node.say("job_started", assigned);
    await until(() => client.states(job_id).includes("RUNNING"), { what: "RUNNING" });
    node.say("job_progress", assigned, { body: { percent: 50 } });
    expect(await client.receive("job_progress")).toMatchObject({ job_id, body: { percent: 50 } });
    node.say("job_result", assigned, { success: true, body: { heard: "hello" } });
    expect(await node.receive("job_result_ack")).toMatchObject({ job_id, outcome: "applied" });
    expect(await client.result({ job_id })).toEqual({
      type: "job_result",
      request_id: request.request_id,
      job_id,
      attempt_id: 1,
      node_id: node.key.address,
      success: true,
      outcome: "succeeded",
      body: { heard: "hello" },
    });
    client.send({ type: "job_result_ack", job_id });
    await released(job_id);
    await freed(node.key.address);
    expect(client.states(job_id)).toEqual(["DISPATCHED", "ACCEPTED", "RUNNING"]);
    const job = await read(job_id);
    expect(job.timeline.map(({ state }: { state: string }) => state)).toEqual([
      "CREATED",
      "DISPATCHED",
      "ACCEPTED",
      "RUNNING",
      "FINISHED",
      "RELEASED",
    ]);
    expect(job).toMatchObject({ outcome: "succeeded", body: { heard: "hello" }, priority: 3 });
  });

  test("I4: a request id has one job, which a repeat gets; another body is refused", async () => {
    const node = await fleet.node(app);
    const client = await fleet.session(app);
    const request = client.submit({ payload: 1 });
    const { job_id } = await client.accepted(request);
    node.finish(await node.assigned());
    await client.result({ job_id });
    client.send({ type: "job_submit", pool: fleet.pool, payload: 1, ...request });
    await until(() => client.results(job_id).length === 2, { what: "the result once more" });
    client.send({ type: "job_submit", pool: fleet.pool, ...request, payload: 2 });
    expect(await client.error(request)).toMatchObject({
      code: "REQUEST_ID_REUSED",
      retryable: false,
    });
    expect(node.assignments()).toHaveLength(1);
  });

  test("I4: a repeated request finds its job, and an unknown one is a new job all the same", async () => {
    const node = await fleet.node(app);
    const client = await fleet.session(app);
    const request = client.submit({ payload: 1, again: true });
    const { job_id, duplicate } = await client.accepted(request);
    expect(duplicate).toBe(false);
    const repeat = { type: "job_submit", pool: fleet.pool, ...request, again: true };
    client.send({ ...repeat, payload: 1 });
    await until(() => client.received.some((one) => one.type === "job_accepted" && one.duplicate), {
      what: "the same job once more",
    });
    client.send({ ...repeat, payload: 2 });
    expect(await client.error(request)).toMatchObject({ code: "REQUEST_ID_REUSED" });
    node.finish(await node.assigned());
    expect(await client.result({ job_id })).toMatchObject({ outcome: "succeeded" });
    expect(node.assignments()).toHaveLength(1);
  });

  // The cut falls into a character for one of the two.
  test.each([
    0, 1,
  ])("a long error of the last attempt is cut between characters, %i", async (odd) => {
    const node = await fleet.node(app);
    const client = await fleet.session(app);
    const { job_id } = await client.accepted(client.submit());
    const message = `${"x".repeat(odd)}${"😀".repeat(2_047)}`;
    for (let attempt = 1; attempt <= 3; attempt++) {
      const error = { code: "BUSY", message, retryable: true };
      node.finish(await node.assigned(attempt), { success: false, error });
    }
    const ended = () =>
      client.socket.readyState !== client.socket.OPEN || client.results(job_id)[0];
    await until(ended, { what: "the result", deadlineMs: 5_000 });
    const { outcome, error } = client.results(job_id)[0]!;
    expect(outcome).toBe("attempts_exhausted");
    expect(/\p{Surrogate}/u.test(error!.message)).toBe(false);
  });

  test("a second session with the same request gets the result too", async () => {
    const node = await fleet.node(app);
    const [first, second] = [await fleet.session(app), await fleet.session(app)];
    const request = first.submit({ payload: 1 });
    const { job_id } = await first.accepted(request);
    second.send({ type: "job_submit", pool: fleet.pool, payload: 1, ...request });
    expect(await second.accepted(request)).toMatchObject({ job_id, duplicate: true });
    node.finish(await node.assigned());
    expect(await first.result({ job_id })).toMatchObject({ body: "done" });
    expect(await second.result({ job_id })).toMatchObject({ body: "done" });
  });

  test("I5: a request that comes several times at once holds one slot, and none when its job has ended", async () => {
    const node = await fleet.node(app, { capacity: 8 });
    const client = await fleet.session(app);
    const request = client.submit({ payload: 1 });
    for (let more = 0; more < 3; more++)
      client.send({ type: "job_submit", pool: fleet.pool, payload: 1, ...request });
    await until(() => client.received.filter(({ type }) => type === "job_accepted").length === 4, {
      what: "four answers",
    });
    node.finish(await node.assigned());
    await client.result(request);
    await freed(node.key.address);
    expect(node.assignments()).toHaveLength(1);
  });

  test("waits for a slot by priority and then by age, and no job is forgotten", async () => {
    const node = await fleet.node(app);
    const client = await fleet.session(app);
    const send = async (words: object) =>
      (await client.accepted(client.submit({ ...words }))).job_id;
    const running = await send({});
    const [first] = [await node.assigned()];
    const low = await send({ priority: 0 });
    const alsoLow = await send({ priority: 0 });
    const urgent = await send({ priority: 9 });
    const order: string[] = [];
    node.finish(first);
    for (const nth of [2, 3, 4]) {
      const next = await node.assigned(nth);
      order.push(next.job_id);
      node.finish(next);
    }
    expect(order).toEqual([urgent, low, alsoLow]);
    for (const job_id of [running, ...order]) await client.result({ job_id });
    await freed(node.key.address);
  });

  test("a submit is refused when the queue of the pool is full, but not a repeated one", async () => {
    const node = await fleet.node(app);
    const client = await fleet.session(app);
    const taken = client.submit();
    await client.accepted(taken);
    const assigned = await node.assigned();
    const waiting = [client.submit(), client.submit(), client.submit()];
    for (const request of waiting) await client.accepted(request);
    const refused = client.submit();
    expect(await client.error(refused)).toMatchObject({
      code: "QUEUE_FULL",
      retryable: true,
      retry_after_ms: expect.any(Number),
    });
    client.send({ type: "job_submit", pool: fleet.pool, payload: null, ...waiting[2] });
    await until(() => client.received.some((one) => one.type === "job_accepted" && one.duplicate), {
      what: "the job that waits already",
    });
    node.finish(assigned);
    for (const nth of [2, 3, 4]) node.finish(await node.assigned(nth));
    for (const { request_id } of [taken, ...waiting]) await client.result({ request_id });
  });

  test("goes to another node after a failure that may be tried again, and not after one that may not", async () => {
    const [one, two] = [await fleet.node(app), await fleet.node(app)];
    const client = await fleet.session(app);
    const { job_id } = await client.accepted(client.submit());
    const first = await until(
      () => [one, two].find((node) => node.assignments(job_id).length > 0),
      {
        what: "the first assignment",
      },
    );
    const second = first === one ? two : one;
    const error = { code: "BUSY", message: "not now", retryable: true };
    first.finish(await first.assigned(1, job_id), { success: false, error });
    const again = await second.assigned(1, job_id);
    expect(again.attempt_id).toBe(2);
    second.finish(again, { success: false, error: { code: "BROKEN", message: "never" } });
    expect(await client.result({ job_id })).toMatchObject({
      attempt_id: 2,
      outcome: "failed",
      error: { code: "BROKEN", message: "never" },
    });
    const states = (await read(job_id)).timeline.map((entry: { reason?: string }) => entry.reason);
    expect(states.join()).toContain("BUSY: not now");
    await Promise.all([freed(one.key.address), freed(two.key.address)]);
  });

  test("a job that fails in each of its attempts ends with the last reason", async () => {
    const node = await fleet.node(app);
    const client = await fleet.session(app);
    const { job_id } = await client.accepted(client.submit());
    for (const nth of [1, 2, 3]) {
      const error = { code: "BUSY", message: `try ${nth}`, retryable: true };
      node.finish(await node.assigned(nth, job_id), { success: false, error });
    }
    const result = await client.result({ job_id });
    expect(result).toMatchObject({ outcome: "attempts_exhausted", attempt_id: 3 });
    expect(result.error).toMatchObject({ code: "ATTEMPTS_EXHAUSTED" });
    expect(result.error?.message).toContain("try 3");
  });

  test("goes elsewhere at once when its node is gone; the late result of the lost one is stale", async () => {
    const lost = await fleet.node(app);
    const client = await fleet.session(app);
    const { job_id } = await client.accepted(client.submit());
    const first = await lost.assigned();
    lost.say("job_ack", first);
    lost.say("job_started", first);
    const other = await fleet.node(app);
    await lost.close();
    const again = await other.assigned(1, job_id);
    expect(again.attempt_id).toBe(2);
    const back = await fleet.node(app, { of: lost.key, running: [{ job_id, attempt_id: 1 }] });
    expect(await back.receive("job_cancel")).toMatchObject({ job_id, attempt_id: 1 });
    back.say("job_result", first, { success: true, body: "late" });
    expect(await back.receive("job_result_ack")).toMatchObject({ outcome: "stale" });
    other.finish(again);
    expect(await client.result({ job_id })).toMatchObject({ attempt_id: 2, body: "done" });
    await Promise.all([freed(lost.key.address), freed(other.key.address)]);
  });

  test("a node that is lost before it accepted the job does not count against it", async () => {
    const client = await fleet.session(app);
    const { job_id } = await client.accepted(client.submit());
    for (let attempt = 1; attempt <= 4; attempt++) {
      const node = await fleet.node(app);
      expect((await node.assigned(1, job_id)).attempt_id).toBe(attempt);
      if (attempt < 4) await node.close();
      else node.obey();
    }
    expect(await client.result({ job_id })).toMatchObject({ outcome: "succeeded", attempt_id: 4 });
  });

  test("a node without the model is left out for the service, and the job goes elsewhere", async () => {
    const services = ["whisper"];
    const lacking = await fleet.node(app, { services, capacity: 10 });
    const client = await fleet.session(app);
    const { job_id } = await client.accepted(client.submit({ service: "whisper" }));
    const assigned = await lacking.assigned(1, job_id);
    const other = await fleet.node(app, { services, capacity: 10 });
    const error = { code: "MODEL_NOT_AVAILABLE", message: "no such model", service: "whisper" };
    lacking.finish(assigned, { success: false, error });
    other.finish(await other.assigned(1, job_id));
    await client.result({ job_id });
    for (let more = 2; more < 6; more++) {
      const next = await client.accepted(client.submit({ service: "whisper" }));
      other.finish(await other.assigned(more));
      await client.result(next);
    }
    expect(lacking.assignments()).toHaveLength(1);
  });

  test("a node that is leaving gets nothing new, and what it gives back is not counted", async () => {
    const leaving = await fleet.node(app);
    const client = await fleet.session(app);
    const { job_id } = await client.accepted(client.submit());
    const assigned = await leaving.assigned();
    const other = await fleet.node(app);
    const error = { code: "NODE_DRAINING", message: "leaving", retryable: true };
    leaving.finish(assigned, { success: false, error });
    const again = await other.assigned(1, job_id);
    expect(again.attempt_id).toBe(2);
    for (const nth of [1, 2]) {
      const failed = { code: "BUSY", message: `try ${nth}`, retryable: true };
      other.finish(await other.assigned(nth, job_id), { success: false, error: failed });
    }
    // The third that counts is the fourth in all.
    const last = await other.assigned(3, job_id);
    expect(last.attempt_id).toBe(4);
    other.finish(last);
    expect(await client.result({ job_id })).toMatchObject({ outcome: "succeeded" });
    expect(leaving.assignments()).toHaveLength(1);
  });

  test("cancel ends it wherever it is: waiting, running, or over", async () => {
    const node = await fleet.node(app);
    const client = await fleet.session(app);
    const running = await client.accepted(client.submit());
    const assigned = await node.assigned();
    node.say("job_ack", assigned);
    const waiting = await client.accepted(client.submit());
    for (const { job_id } of [waiting, running]) {
      client.send({ type: "job_cancel", job_id });
      expect(await client.result({ job_id })).toMatchObject({
        outcome: "cancelled",
        error: { code: "JOB_CANCELLED" },
      });
    }
    expect(await node.receive("job_cancel")).toMatchObject({ job_id: running.job_id });
    node.say("job_result", assigned, { success: true });
    expect(await node.receive("job_result_ack")).toMatchObject({ outcome: "stale" });
    await freed(node.key.address);
    expect(node.assignments()).toHaveLength(1);
    const cancelled = await fleet.ask(app, "POST", `/jobs/${running.job_id}/cancel`);
    expect(cancelled.body).toMatchObject({ outcome: "cancelled" });
    const other = await fleet.session(app);
    other.send({ type: "job_cancel", job_id: running.job_id });
    expect(await other.error({ job_id: running.job_id })).toMatchObject({ code: "NOT_FOUND" });
  });

  test("what a session missed it gets when it comes back", async () => {
    const node = await fleet.node(app);
    const client = await fleet.session(app);
    const { job_id } = await client.accepted(client.submit());
    const assigned = await node.assigned();
    await client.close();
    node.finish(assigned);
    await node.receive("job_result_ack");
    const { sessionId: session_id, resumeToken: resume_token } = client;
    const back = await fleet.session(app, { session_id, resume_token });
    expect(await back.result({ job_id })).toMatchObject({ body: "done" });
    await back.close();
    const again = await fleet.session(app, { session_id, resume_token });
    expect(await again.result({ job_id })).toMatchObject({ body: "done" });
    again.send({ type: "job_result_ack", job_id });
    await released(job_id);
  });

  test("messages that arrive twice in one tick are applied once, and the slot is free", async () => {
    const node = await fleet.node(app);
    const client = await fleet.session(app);
    const { job_id } = await client.accepted(client.submit());
    const assigned = await node.assigned();
    for (let times = 0; times < 3; times++) node.finish(assigned);
    await client.result({ job_id });
    await released(job_id);
    await freed(node.key.address);
    expect(client.results(job_id)).toHaveLength(1);
  });

  test("late, repeated and stale reports change nothing, and their sender gets an error", async () => {
    const [node, stranger] = [await fleet.node(app), await fleet.node(app, { pools: ["other"] })];
    const client = await fleet.session(app);
    const { job_id } = await client.accepted(client.submit());
    const assigned = await node.assigned();
    for (const type of ["job_ack", "job_started", "job_progress"]) {
      stranger.say(type, assigned, { body: 1 });
      node.say(type, { job_id, attempt_id: 7 }, { body: 1 });
    }
    await until(() => stranger.received.filter(({ type }) => type === "error").length >= 1, {
      what: "an error for the stranger",
    });
    expect(await stranger.receive("error")).toMatchObject({ code: "STALE_ATTEMPT", job_id });
    expect(await node.receive("error")).toMatchObject({ code: "STALE_ATTEMPT", job_id });
    stranger.say("job_result", assigned, { success: true, body: "theft" });
    expect(await stranger.receive("job_result_ack")).toMatchObject({ outcome: "stale" });
    expect((await read(job_id)).state).toBe("DISPATCHED");
    node.finish(assigned);
    await node.receive("job_result_ack", ({ outcome }) => outcome === "applied");
    node.say("job_result", assigned, { success: false });
    await node.receive("job_result_ack", ({ outcome }) => outcome === "duplicate");
    node.say("job_ack", assigned);
    expect(await client.result({ job_id })).toMatchObject({ outcome: "succeeded", body: "done" });
    await released(job_id);
    expect(client.results(job_id)).toHaveLength(1);
    const unknown = { job_id: randomUUID(), attempt_id: 1 };
    node.say("job_result", unknown, { success: true });
    await node.receive("job_result_ack", (ack) => ack.job_id === unknown.job_id);
  });

  test("over HTTP: submit and wait, read, list, and not what is another's", async () => {
    const node = await fleet.node(app);
    const request_id = randomUUID();
    const asked = fleet.ask(app, "POST", "/jobs?wait_ms=20000", {
      request_id,
      pool: fleet.pool,
      payload: 1,
    });
    node.finish(await node.assigned());
    const { status, body: job } = await asked;
    expect(status).toBe(200);
    expect(job).toMatchObject({ request_id, outcome: "succeeded", body: "done" });
    const again = await fleet.ask(app, "POST", "/jobs", {
      request_id,
      pool: fleet.pool,
      payload: 1,
    });
    expect(again).toMatchObject({ status: 200, body: { job_id: job.job_id } });
    const listed = await fleet.ask(app, "GET", `/jobs?request_id=${request_id}`);
    expect(listed.body.items).toMatchObject([{ job_id: job.job_id }]);
    const page = await fleet.ask(app, "GET", "/jobs?outcome=succeeded&limit=1");
    expect(page.body.items).toHaveLength(1);
    expect(page.body.next_cursor).not.toBeNull();
    const next = await fleet.ask(app, "GET", `/jobs?limit=500&cursor=${page.body.next_cursor}`);
    expect(next.body.items.map((one: { job_id: string }) => one.job_id)).not.toContain(job.job_id);
    const waiting = { request_id: randomUUID(), pool: "nobody", payload: 1 };
    expect((await fleet.ask(app, "POST", "/jobs?wait_ms=10", waiting)).status).toBe(202);
    expect((await fleet.ask(app, "GET", `/jobs/${randomUUID()}`)).status).toBe(404);
  });

  test("a payload or a result that is too large is refused with words", async () => {
    const node = await fleet.node(app);
    const client = await fleet.session(app);
    const request = client.submit({ payload: "x".repeat(262_145) });
    expect(await client.error(request)).toMatchObject({ code: "PAYLOAD_TOO_LARGE" });
    const { job_id } = await client.accepted(client.submit({ payload: "x".repeat(200_000) }));
    const assigned = await node.assigned();
    expect(assigned.payload).toHaveLength(200_000);
    node.finish(assigned, { success: true, body: "y".repeat(262_145) });
    expect(await client.result({ job_id })).toMatchObject({
      outcome: "failed",
      error: { code: "PAYLOAD_TOO_LARGE" },
    });
  });
});

describe.each(HOT_STORES)("a job that no node can take, on %s", (kind) => {
  beforeAll(async () => {
    fleet = await openJobFleet(kind, { env: { TENURE_JOB_TIMEOUT_PENDING_TIMEOUT_SECONDS: "2" } });
    app = fleet.apps[0]!;
  });
  afterEach(() => fleet.rest());
  afterAll(() => fleet.stop());

  test("a job ends as no_node, with the reasons, when no node can take it in time", async () => {
    await fleet.node(app, { services: ["whisper"], pools: ["elsewhere"] });
    const client = await fleet.session(app);
    const { job_id } = await client.accepted(client.submit({ service: "whisper" }));
    const result = await client.result({ job_id });
    expect(result).toMatchObject({ success: false, outcome: "no_node" });
    expect(result.error?.code).toBe("NO_AVAILABLE_NODE");
    expect(result.error?.message).toContain("1 not_in_pool");
  });
});

describe.each(HOT_STORES)("nodes that are too slow, on %s", (kind) => {
  beforeAll(async () => {
    fleet = await openJobFleet(kind, {
      env: { ...PATIENT, TENURE_JOB_TIMEOUT_ACK_TIMEOUT_SECONDS: "4" },
    });
    app = fleet.apps[0]!;
  });
  afterEach(() => fleet.rest());
  afterAll(() => fleet.stop());

  test("a node that does not accept in time loses the job to another", async () => {
    // Both are there from the beginning: whichever gets it is the silent one.
    const nodes = [await fleet.node(app), await fleet.node(app)];
    const client = await fleet.session(app);
    const { job_id } = await client.accepted(client.submit());
    const has = (node: JobNode) => node.assignments(job_id).length > 0;
    const silent = await until(() => nodes.find(has), { what: "an assignment" });
    const other = nodes.find((node) => node !== silent)!;
    const again = await other.assigned(1, job_id);
    expect(again.attempt_id).toBe(2);
    expect(await silent.receive("job_cancel")).toMatchObject({ job_id, attempt_id: 1 });
    other.finish(again);
    await client.result({ job_id });
  });

  test("a job that runs for too long is tried again, and in the end times out", async () => {
    const node = await fleet.node(app);
    const client = await fleet.session(app);
    const { job_id } = await client.accepted(client.submit({ timeout_ms: 100 }));
    for (const nth of [1, 2, 3]) {
      const assigned = await node.assigned(nth, job_id);
      node.say("job_ack", assigned);
      node.say("job_started", assigned);
    }
    expect(await client.result({ job_id })).toMatchObject({
      outcome: "timed_out",
      error: { code: "JOB_TIMEOUT" },
    });
    await freed(node.key.address);
  });
});
