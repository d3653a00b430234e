import { randomUUID } from "node:crypto";
import { until } from "@tenure/testing/until";
import { Cluster } from "ioredis";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { armFailpoint, disarmAll } from "../../../testing/failpoints.js";
import { HOT_STORES, openTestPeer } from "../../../testing/hot-stores.ts";
import {
  type JobFleet,
  type JobNode,
  type JobSession,
  openJobFleet,
} from "../../../testing/job-fleet.ts";
import type { App } from "../../app.ts";
import type { RedisStore } from "../../store/redis.ts";
import { placeTurn } from "./turn-store.ts";

let fleet: JobFleet;
let a: App;
let b: App;

async function gather(
  kind: (typeof HOT_STORES)[number],
  { affinityWaitMs }: { affinityWaitMs: number },
): Promise<void> {
  fleet = await openJobFleet(kind, {
    instances: kind === "memory" ? 1 : 2,
    env: {
      TENURE_JOB_TIMEOUT_ACK_TIMEOUT_SECONDS: "60",
      TENURE_JOB_TIMEOUT_PENDING_TIMEOUT_SECONDS: "60",
      TENURE_SCHEDULER_AFFINITY_WAIT_MS: String(affinityWaitMs),
    },
  });
  a = fleet.apps[0]!;
  b = fleet.apps.at(-1)!;
}

const read = async (jobId: string) => (await fleet.ask(a, "GET", `/jobs/${jobId}`)).body;
const readTurn = (turnId: string) => fleet.ask(a, "GET", `/turns/${turnId}`);
const nodeOf = (nodes: JobNode[], jobId: string) =>
  until(() => nodes.find((node) => node.assignments(jobId).length > 0), {
    what: "an assignment",
    deadlineMs: 60_000,
  });

describe.each(HOT_STORES)("turns, on %s", (kind) => {
  beforeAll(() => gather(kind, { affinityWaitMs: 50_000 }));
  afterEach(() => fleet.rest());
  afterAll(() => fleet.stop());

  const workers = (words: Record<string, unknown> = {}) =>
    Promise.all([a, b, a, b].map((at) => fleet.node(at, { capacity: 50, ...words })));
  const submit = async (speaker: JobSession, words: Record<string, unknown> = {}) =>
    speaker.accepted(speaker.submit({ turn: true, ...words }));

  test("I8: jobs of one turn go to one node, also the first two in the same instant", async () => {
    const nodes = await workers();
    const speaker = await fleet.session(a);
    const requests = Array.from({ length: 20 }, () => speaker.submit({ turn: true }));
    const jobs = [];
    for (const request of requests) jobs.push(await speaker.accepted(request));
    expect(new Set(jobs.map(({ turn_id }) => turn_id)).size).toBe(1);
    const placed = [];
    for (const { job_id } of jobs) placed.push(await nodeOf(nodes, job_id));
    expect(new Set(placed).size).toBe(1);
    const [node] = placed;
    for (const assigned of node!.assignments()) {
      expect(assigned.turn_id).toBe(jobs[0]!.turn_id);
      node!.finish(assigned);
    }
    for (const { job_id } of jobs)
      expect(await speaker.result({ job_id })).toMatchObject({ turn_id: jobs[0]!.turn_id });
    expect((await readTurn(jobs[0]!.turn_id!)).body).toEqual({
      turn_id: jobs[0]!.turn_id,
      session_id: speaker.sessionId,
      affinity_node_id: node!.key.address,
      ended: null,
    });
    const outcomes = await Promise.all(
      jobs.map(async ({ job_id }) => (await read(job_id)).affinity),
    );
    expect(outcomes.filter((outcome) => outcome === "first")).toHaveLength(1);
    expect(outcomes.filter((outcome) => outcome === "hit")).toHaveLength(19);
  });

  test("speakers do not mix, and the next turn of one is free to go elsewhere", async () => {
    const nodes = await workers();
    const speakers = await Promise.all([a, b, a, b].map((at) => fleet.session(at)));
    const turnOf = async (speaker: JobSession) => {
      const first = await submit(speaker);
      const last = await submit(speaker, { finalize: "manual" });
      expect(last.turn_id).toBe(first.turn_id);
      expect(await nodeOf(nodes, last.job_id)).toBe(await nodeOf(nodes, first.job_id));
      return first.turn_id!;
    };
    const turns = await Promise.all(speakers.map(turnOf));
    expect(new Set(turns).size).toBe(4);
    const next = await Promise.all(speakers.map(turnOf));
    expect(new Set([...turns, ...next]).size).toBe(8);
    await until(async () => (await readTurn(turns[0]!)).body.ended === "manual", {
      what: "an ended turn",
    });
    expect((await readTurn(turns[0]!)).body.affinity_node_id).toBeNull();
  });

  test("a job waits for the turn's node, though another one is free", async () => {
    const first = await fleet.node(a, { capacity: 1 });
    const speaker = await fleet.session(a);
    await submit(speaker);
    const assigned = await first.assigned();
    const other = await fleet.node(b, { capacity: 5 });
    const patient = await submit(speaker);
    first.finish(assigned);
    first.finish(await first.assigned(1, patient.job_id));
    await speaker.result(patient);
    expect((await read(patient.job_id)).affinity).toBe("hit");
    expect(other.assignments()).toEqual([]);
  });

  test("when the turn's node is gone the next job goes elsewhere at once", async () => {
    const first = await fleet.node(a);
    const speaker = await fleet.session(a);
    const opening = await submit(speaker);
    first.finish(await first.assigned());
    await speaker.result(opening);
    const other = await fleet.node(b, { capacity: 5 });
    await first.close();
    const next = await submit(speaker);
    await other.assigned(1, next.job_id);
    expect((await read(next.job_id)).affinity).toBe("offline");
    expect((await readTurn(opening.turn_id!)).body.affinity_node_id).toBe(first.key.address);
    const elsewhere = await fleet.node(a, { pools: ["elsewhere"], capacity: 5 });
    const far = await submit(speaker, { pool: "elsewhere" });
    await elsewhere.assigned(1, far.job_id);
  });

  test("a job submitted after a closing job that waits is in a new turn", async () => {
    const node = await fleet.node(a, { capacity: 1 });
    const speaker = await fleet.session(a);
    const opening = await submit(speaker);
    const assigned = await node.assigned();
    // All at once, and in this order.
    const closing = speaker.submit({ turn: true, finalize: "manual" });
    const following = speaker.submit({ turn: true });
    expect((await speaker.accepted(closing)).turn_id).toBe(opening.turn_id);
    const next = await speaker.accepted(following);
    expect(next.turn_id).not.toBe(opening.turn_id);
    expect((await readTurn(opening.turn_id!)).body.ended).toBeNull();
    node.obey();
    node.finish(assigned);
    await speaker.result(next);
    await until(async () => (await readTurn(opening.turn_id!)).body.ended === "manual", {
      what: "the end",
    });
  });

  test("turn_finalize ends a turn, with each reason; without a turn it is NOT_FOUND; a repeat changes nothing", async () => {
    const node = await fleet.node(a, { capacity: 9 });
    node.obey();
    const speaker = await fleet.session(a);
    speaker.send({ type: "turn_finalize", reason: "manual" });
    expect(await speaker.receive("error")).toMatchObject({ code: "NOT_FOUND" });
    for (const reason of ["manual", "timeout"]) {
      const { turn_id, request_id, job_id } = await submit(speaker);
      await speaker.result({ job_id });
      speaker.send({ type: "turn_finalize", reason });
      await until(
        () =>
          speaker.received.some(
            (one) =>
              one.type === "turn_finalized" && one.turn_id === turn_id && one.reason === reason,
          ),
        { what: "turn_finalized" },
      );
      expect((await readTurn(turn_id!)).body).toMatchObject({
        ended: reason,
        affinity_node_id: null,
      });
      const today = await submit(speaker);
      speaker.send({
        type: "job_submit",
        request_id,
        pool: fleet.pool,
        payload: null,
        turn: true,
        finalize: "manual",
      });
      await until(
        () =>
          speaker.received.some(
            (one) => one.type === "job_accepted" && one.job_id === job_id && one.duplicate,
          ),
        { what: "the old job" },
      );
      expect((await submit(speaker)).turn_id).toBe(today.turn_id);
      speaker.send({ type: "turn_finalize", reason: "manual" });
      await until(async () => (await readTurn(today.turn_id!)).body.ended, { what: "the end" });
    }
  });

  test("jobs submitted before the end of a turn go to one node, also if it has none yet when the turn ends", async () => {
    const speaker = await fleet.session(a);
    const jobs: Awaited<ReturnType<typeof submit>>[] = [];
    for (let n = 0; n < 8; n++) jobs.push(await submit(speaker));
    speaker.send({ type: "turn_finalize", reason: "manual" });
    await speaker.receive("turn_finalized");
    const next = await submit(speaker);
    expect(next.turn_id).not.toBe(jobs[0]!.turn_id);
    const nodes = await workers();
    const placed = new Set();
    for (const { job_id } of jobs) placed.add(await nodeOf(nodes, job_id));
    expect(placed.size).toBe(1);
    const ended = async () => (await readTurn(jobs[0]!.turn_id!)).body;
    await until(async () => (await ended()).ended === "manual", { what: "the end of the turn" });
    expect((await ended()).affinity_node_id).toBeNull();
  });

  test("a pause the session asked for ends its turn", async () => {
    const node = await fleet.node(a, { capacity: 9 });
    node.obey();
    const speaker = await fleet.session(a, { turn_pause_ms: 300 });
    const { turn_id } = await submit(speaker);
    expect(await speaker.receive("turn_finalized")).toEqual({
      type: "turn_finalized",
      turn_id,
      reason: "timeout",
    });
    expect((await submit(speaker)).turn_id).not.toBe(turn_id);
  });

  test("a session that resumes continues its turn, on the same node", async () => {
    const nodes = await workers();
    for (const node of nodes) node.obey();
    const speaker = await fleet.session(a);
    const { turn_id, job_id } = await submit(speaker);
    const node = await nodeOf(nodes, job_id);
    await speaker.close();
    const { sessionId: session_id, resumeToken: resume_token } = speaker;
    const back = await fleet.session(b, { session_id, resume_token });
    const next = await submit(back);
    expect(next.turn_id).toBe(turn_id);
    expect(await nodeOf(nodes, next.job_id)).toBe(node);
    const metrics = await (await fetch(new URL("/metrics", a.url))).text();
    expect(metrics).toMatch(/^tenure_turn_affinity_total\{outcome="hit"\} [1-9]/m);
  });

  if (kind !== "memory")
    test("the seed's contract, as the store has it", async () => {
      const nodes = await workers();
      const speaker = await fleet.session(a);
      const { turn_id, job_id } = await submit(speaker);
      const node = await nodeOf(nodes, job_id);
      const store = (await openTestPeer(kind, fleet.prefix)) as RedisStore;
      try {
        const turnKey = `${fleet.prefix}:scheduler:turn:${turn_id}`;
        const sessionKey = `${fleet.prefix}:scheduler:session:${speaker.sessionId}`;
        const { client } = store;
        expect(await client.hget(turnKey, "affinity_node_id")).toBe(node.key.address);
        expect(await client.hget(sessionKey, "current_turn_id")).toBe(turn_id);
        expect([await client.pttl(turnKey), await client.pttl(sessionKey)]).toEqual([-1, -1]);
        const others = await fieldsOf(client, fleet.prefix);
        expect(others.size).toBeGreaterThan(5);
        expect(others).not.toContain("timeout_node_id");
        expect(others).not.toContain("max_duration_node_id");
        const about = { turnId: turn_id!, sessionId: speaker.sessionId };
        const rival = nodes.find((each) => each !== node)!.key.address;
        expect(await placeTurn(store, { ...about, nodeId: rival })).toEqual({
          outcome: "stored",
          nodeId: node.key.address,
        });
        expect(await client.hget(turnKey, "affinity_node_id")).toBe(node.key.address);
        speaker.send({ type: "turn_finalize", reason: "manual" });
        await speaker.receive("turn_finalized");
        expect(await client.hexists(turnKey, "affinity_node_id")).toBe(0);
        expect(await client.hexists(sessionKey, "current_turn_id")).toBe(0);
        // Late: it does not revive what is over.
        await placeTurn(store, { ...about, nodeId: rival });
        expect(await client.hexists(turnKey, "affinity_node_id")).toBe(0);
        expect(await client.pttl(turnKey)).toBeGreaterThan(0);
      } finally {
        await store.close();
      }
    });

  test("a job over HTTP has no turn, and an unknown turn is not found", async () => {
    const node = await fleet.node(a);
    node.obey();
    const spec = { request_id: randomUUID(), pool: fleet.pool, payload: 1 };
    const { body } = await fleet.ask(a, "POST", "/jobs?wait_ms=20000", spec);
    expect(body.affinity).toBe("no_turn");
    expect((await readTurn(randomUUID())).status).toBe(404);
  });
});

describe.each(HOT_STORES)("a job that has waited for its turn's node, on %s", (kind) => {
  beforeAll(() => gather(kind, { affinityWaitMs: 500 }));
  afterAll(() => fleet.stop());

  test("goes elsewhere; nothing is written back", async () => {
    const first = await fleet.node(a, { capacity: 1 });
    const speaker = await fleet.session(a);
    const opening = await speaker.accepted(speaker.submit({ turn: true }));
    await first.assigned(1, opening.job_id);
    const other = await fleet.node(b, { capacity: 5 });
    const impatient = await speaker.accepted(speaker.submit({ turn: true }));
    await other.assigned(1, impatient.job_id);
    expect((await read(impatient.job_id)).affinity).toBe("no_slot");
    expect((await readTurn(opening.turn_id!)).body.affinity_node_id).toBe(first.key.address);
    expect(impatient.turn_id).toBe(opening.turn_id);
  });
});

/** Every field of every hash under the prefix, on every server. */
async function fieldsOf(client: RedisStore["client"], prefix: string): Promise<Set<string>> {
  const fields = new Set<string>();
  for (const server of client instanceof Cluster ? client.nodes("master") : [client])
    for await (const keys of server.scanStream({ match: `${prefix}:*`, count: 1_000 }))
      for (const key of keys as string[])
        if ((await server.type(key)) === "hash")
          for (const field of await server.hkeys(key)) fields.add(field);
  return fields;
}

describe.each(HOT_STORES)("a closing job that ends before it is in its turn, on %s", (kind) => {
  beforeAll(async () => {
    fleet = await openJobFleet(kind, {
      instances: kind === "memory" ? 1 : 2,
      env: {
        TENURE_JOB_TIMEOUT_PENDING_TIMEOUT_SECONDS: "3",
        // The sweep, which would end such a turn with `timeout`, does not run within this test.
        TENURE_JOB_TIMEOUT_ACK_TIMEOUT_SECONDS: "300",
      },
    });
    a = fleet.apps[0]!;
    b = fleet.apps.at(-1)!;
  });
  afterEach(async () => {
    disarmAll();
    await fleet.rest();
  });
  afterAll(() => fleet.stop());

  const openJobOf = (request: { request_id: string }) =>
    until(
      async () => {
        const { items } = (await fleet.ask(b, "GET", "/jobs")).body as unknown as {
          items: { job_id: string; request_id: string }[];
        };
        return items.find(({ request_id }) => request_id === request.request_id)?.job_id;
      },
      { what: "the job in the list", deadlineMs: 60_000 },
    );
  const untilEnded = (turnId: string) =>
    until(async () => (await readTurn(turnId)).body.ended === "manual", {
      what: "the end of the turn, by its closing job",
      deadlineMs: 120_000,
    });

  test("cancelled: it ends its turn at once, and the next job begins another", async () => {
    const node = await fleet.node(a, { capacity: 5 });
    node.obey();
    const speaker = await fleet.session(a);
    const opening = await speaker.accepted(speaker.submit({ turn: true }));
    let goOn = () => {};
    const stopped = new Promise<void>((reached) => {
      armFailpoint("turn.before-join", () => {
        disarmAll();
        reached();
        return new Promise<void>((resolve) => {
          goOn = resolve;
        });
      });
    });
    const closing = speaker.submit({ turn: true, finalize: "manual" });
    await stopped;
    const jobId = await openJobOf(closing);
    expect((await fleet.ask(b, "POST", `/jobs/${jobId}/cancel`, {})).status).toBe(200);
    expect(await speaker.result(closing)).toMatchObject({ outcome: "cancelled" });
    // With another instance it does not take the one that stopped.
    if (kind === "memory") goOn();
    await untilEnded(opening.turn_id!);
    goOn();
    const next = await speaker.accepted(speaker.submit({ turn: true }));
    expect(next.turn_id).not.toBe(opening.turn_id);
    await speaker.result(next);
    expect(node.assignments(jobId)).toEqual([]);
  }, 300_000);

  test("given up by the index: it ends its turn at once", async () => {
    const node = await fleet.node(a, { capacity: 5 });
    node.obey();
    const speaker = await fleet.session(a);
    const opening = await speaker.accepted(speaker.submit({ turn: true }));
    let jobId: string | undefined;
    const outcome = async () => (jobId ? (await read(jobId)).outcome : undefined);
    // Neither its submit nor its recovery joins the turn before its limit is over.
    armFailpoint("turn.before-join", async () => {
      if (!(await outcome())) throw new Error("not now");
    });
    jobId = await openJobOf(speaker.submit({ turn: true, finalize: "manual" }));
    expect(await until(outcome, { what: "no_node", deadlineMs: 120_000 })).toBe("no_node");
    await untilEnded(opening.turn_id!);
    expect((await speaker.accepted(speaker.submit({ turn: true }))).turn_id).not.toBe(
      opening.turn_id,
    );
  }, 300_000);
});

describe.each(HOT_STORES)("a job that joined its turn and was not written down, on %s", (kind) => {
  beforeAll(async () => {
    fleet = await openJobFleet(kind, {
      env: { TENURE_JOB_TIMEOUT_PENDING_TIMEOUT_SECONDS: "120" },
    });
    a = fleet.apps[0]!;
  });
  afterEach(() => disarmAll());
  afterAll(() => fleet.stop());

  test("a job whose join failed joins again, and its record has the turn", async () => {
    const node = await fleet.node(a, { capacity: 5 });
    node.obey();
    const speaker = await fleet.session(a);
    const opening = await speaker.accepted(speaker.submit({ turn: true }));
    armFailpoint("turn.after-join", () => {
      disarmAll();
      throw new Error("the store is away");
    });
    const request = speaker.submit({ turn: true });
    const { job_id, turn_id } = await until(
      () => speaker.results().find(({ request_id }) => request_id === request.request_id),
      { what: "its result, by the index", deadlineMs: 120_000 },
    );
    expect(turn_id).toBe(opening.turn_id);
    expect((await fleet.ask(a, "GET", `/jobs/${job_id}`)).body.turn_id).toBe(opening.turn_id);
  }, 300_000);
});

describe.each(HOT_STORES)("a speaker who vanishes mid-turn, on %s", (kind) => {
  beforeAll(async () => {
    fleet = await openJobFleet(kind, {
      env: { TENURE_SCHEDULER_SESSION_GONE_AFTER_SECONDS: "5" },
    });
    a = fleet.apps[0]!;
  });
  afterAll(() => fleet.stop());

  test("leaves nothing behind once the session is gone for good", async () => {
    const node = await fleet.node(a, { capacity: 5 });
    node.obey();
    const speaker = await fleet.session(a);
    const { turn_id } = await speaker.accepted(speaker.submit({ turn: true }));
    expect((await readTurn(turn_id!)).status).toBe(200);
    await speaker.close();
    // Its session is gone, so the turn cannot be read any more; and nothing of it is left.
    await until(async () => (await readTurn(turn_id!)).status === 404, {
      what: "a forgotten session",
      deadlineMs: 60_000,
    });
    const leftovers = async () => {
      const metrics = await (await fetch(new URL("/metrics", a.url))).text();
      return /^tenure_turn_leftovers 0$/m.test(metrics);
    };
    await until(leftovers, { what: "no leftovers", deadlineMs: 60_000 });
  }, 300_000);
});
