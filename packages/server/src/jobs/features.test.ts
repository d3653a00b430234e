import { until } from "@tenure/testing/until";
import { afterAll, afterEach, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { holdNextAt } from "../../testing/hold-next.ts";
import { type JobFleet, openJobFleet } from "../../testing/job-fleet.ts";

let fleet: JobFleet;
const PATIENT = { TENURE_JOB_TIMEOUT_ACK_TIMEOUT_SECONDS: "60" };

describe.each([
  ["memory", 1],
  ["redis", 2],
] as const)("on %s, node and session on the first and the last of %i", (kind, instances) => {
  beforeAll(async () => {
    fleet = await openJobFleet(kind, { instances, env: PATIENT });
  });
  afterEach(() => fleet.rest());
  afterAll(() => fleet.stop());
  const sessionAt = () => fleet.apps.at(-1)!;
  const nodeAt = () => fleet.apps[0]!;
  const features = ["updates_on_request", "of_a_later_release"];

  test("a session that asked for updates_on_request gets the states of the jobs it watches", async () => {
    const node = await fleet.node(nodeAt(), { capacity: 8 });
    const session = await fleet.session(sessionAt(), { features });
    expect(session.received[0]).toMatchObject({ features: ["updates_on_request"] });
    const run = async (words: Record<string, unknown>, watch?: "at once" | "late") => {
      const request = session.submit(words);
      if (watch === "at once") session.send({ type: "job_watch", ...request });
      const { job_id } = await session.accepted(request);
      const assigned = await node.assigned(1, job_id);
      node.say("job_ack", assigned);
      await fleet.reached(job_id, "ACCEPTED");
      if (watch === "late") {
        session.send({ type: "job_watch", request_id: request.request_id, job_id });
        session.send({ type: "session_ping" });
        await session.receive("session_pong");
      }
      node.say("job_started", assigned);
      await fleet.reached(job_id, "RUNNING");
      node.say("job_progress", assigned, { body: 50 });
      await until(
        () => session.received.some((m) => m.type === "job_progress" && m.job_id === job_id),
        { what: "progress" },
      );
      node.say("job_result", assigned, { success: true });
      await session.result({ job_id });
      return session.states(job_id);
    };
    const all = ["DISPATCHED", "ACCEPTED", "RUNNING"];
    expect(await run({ payload: 1 })).toEqual([]);
    expect(await run({ payload: 2, updates: true })).toEqual(all);
    expect(await run({ payload: 3 }, "at once")).toEqual(all);
    // The state it is in is known to the instance that tracks the job.
    const late = await run({ payload: 4 }, "late");
    expect(late).toEqual(instances === 1 ? ["ACCEPTED", "RUNNING"] : ["RUNNING"]);
  });

  test("acknowledgements are lists for a node and a session that were granted ack_lists", async () => {
    const granted = { features: ["ack_lists"] };
    const node = await fleet.node(nodeAt(), { capacity: 8, ...granted });
    const session = await fleet.session(sessionAt(), granted);
    const end = async (payload: number, words: object = {}) => {
      const { job_id } = await session.accepted(session.submit({ payload, ...words }));
      const assigned = await node.assigned(1, job_id);
      node.finish(assigned);
      const { attempt_id, outcome } = await session.result({ job_id });
      return { assigned, ack: { job_id, attempt_id, outcome } };
    };
    // Alone, the acknowledgement comes by itself.
    const one = await end(1);
    const isFirst = (acks: { job_id: string }[] = []) => acks[0]?.job_id === one.ack.job_id;
    const first = await node.receive("acks", ({ acks }) => isFirst(acks));
    expect(first.acks).toEqual([{ ...attemptOf(one.assigned), outcome: "applied" }]);
    // The session's goes with its next submit, and a list that repeats one changes nothing.
    const two = await end(2, { acks: [one.ack] });
    await fleet.reached(one.ack.job_id, "RELEASED");
    session.send({ type: "acks", acks: [one.ack, two.ack] });
    // A result that comes again and one of an attempt that never was: each has an answer of its own.
    node.finish(one.assigned);
    node.finish({ ...two.assigned, attempt_id: 7 });
    const outcomes = () => {
      const all = node.received.flatMap((message) =>
        message.type === "acks" || message.type === "job_assign" ? (message.acks ?? []) : [],
      );
      return all.map(({ job_id, attempt_id, outcome }) =>
        [job_id === one.ack.job_id ? "one" : "two", attempt_id, outcome].join(" "),
      );
    };
    await until(() => outcomes().length === 4, { what: "four acknowledgements" });
    expect(outcomes().sort()).toEqual([
      "one 1 applied",
      "one 1 duplicate",
      "two 1 applied",
      "two 7 stale",
    ]);
    expect(node.count("job_result_ack")).toBe(0);
    await session.close();
    // Nothing comes again on the next connection of the session: both were acknowledged.
    const back = await fleet.session(sessionAt(), {
      ...granted,
      session_id: session.sessionId,
      resume_token: session.resumeToken,
    });
    const last = await back.accepted(back.submit({ payload: 3 }));
    node.finish(await node.assigned(1, last.job_id));
    await back.result(last);
    expect(back.results()).toHaveLength(1);
  });

  test("with deferred_start one result implies the steps before it, placed between dispatch and now", async () => {
    const node = await fleet.node(nodeAt(), { capacity: 8, features: ["deferred_start"] });
    const session = await fleet.session(sessionAt());
    const run = async (more: object) => {
      const { job_id } = await session.accepted(session.submit());
      node.say("job_result", await node.assigned(1, job_id), { success: true, ...more });
      await session.result({ job_id });
      const { body } = await fleet.ask(nodeAt(), "GET", `/jobs/${job_id}`);
      const timeline = body.timeline as { state: string; at: string }[];
      const times = timeline.map(({ at }) => at);
      expect(times).toEqual(times.toSorted());
      return timeline.map(({ state, at }) => ({ state, atMs: Date.parse(at) }));
    };
    const all = ["CREATED", "DISPATCHED", "ACCEPTED", "RUNNING", "FINISHED"];
    const far = await run({ accepted_ms_ago: 2_147_483_647, started_ms_ago: 0 });
    expect(far.map(({ state }) => state).slice(0, 5)).toEqual(all);
    expect(far[2]!.atMs).toBe(far[1]!.atMs);
    expect(far[3]!.atMs).toBe(far[4]!.atMs);
    // The loss of what implies nothing is that of today: no start is made up.
    expect((await run({})).map(({ state }) => state).slice(1, 3)).toEqual([
      "DISPATCHED",
      "FINISHED",
    ]);
  });

  test("a node with deferred_start that is lost in DISPATCHED costs an attempt, any other does not", async () => {
    const session = await fleet.session(sessionAt());
    for (const features of [["deferred_start"], []]) {
      const { job_id } = await session.accepted(session.submit());
      for (let attempt = 1; attempt <= 3; attempt++) {
        const node = await fleet.node(nodeAt(), { features });
        await node.assigned(1, job_id);
        await node.close();
        if (attempt < 3) await fleet.reached(job_id, "CREATED", attempt + 1);
      }
      if (features.length === 0) await fleet.reached(job_id, "CREATED", 4);
      else
        expect(await session.result({ job_id })).toMatchObject({ outcome: "attempts_exhausted" });
      session.send({ type: "job_cancel", job_id });
    }
  });

  test("a process that is replaced under its address loses what it took, the same process gets it again", async () => {
    const session = await fleet.session(sessionAt());
    const features = ["deferred_start"];
    const first = await fleet.node(nodeAt(), { features });
    const { job_id } = await session.accepted(session.submit());
    await first.assigned(1, job_id);
    first.socket.terminate();
    const { key, bootId } = first;
    const again = await fleet.node(nodeAt(), { of: key, bootId, features });
    expect(await again.assigned(1, job_id)).toMatchObject({ attempt_id: 1 });
    await again.close();
    const other = await fleet.node(nodeAt(), { of: key, features });
    expect(await other.assigned(1, job_id)).toMatchObject({ attempt_id: 2 });
    other.finish(await other.assigned(1, job_id));
    expect(await session.result({ job_id })).toMatchObject({ success: true, attempt_id: 2 });
  });

  test.each([
    "the same instance",
    "another instance",
  ])("another process under its address at %s, with the loss not handled, does not get what it took", async (where) => {
    const session = await fleet.session(sessionAt());
    const features = ["deferred_start"];
    const first = await fleet.node(nodeAt(), { features });
    const { job_id } = await session.accepted(session.submit());
    await first.assigned(1, job_id);
    // Its presence is withdrawn by then, and no attempt is ended.
    const leaving = holdNextAt("node.after-leave");
    onTestFinished(() => leaving.letGo());
    first.socket.terminate();
    await leaving.reached;
    const at = where === "the same instance" ? nodeAt() : sessionAt();
    const other = await fleet.node(at, { of: first.key, features });
    expect(await other.assigned(1, job_id)).toMatchObject({ attempt_id: 2 });
    leaving.letGo();
    other.finish(await other.assigned(1, job_id));
    await session.result({ job_id });
    const { body } = await fleet.ask(nodeAt(), "GET", `/jobs/${job_id}`);
    const timeline = body.timeline as { reason?: string }[];
    const reasons = timeline.flatMap(({ reason }) => reason ?? []);
    expect(reasons).toEqual(["its node was lost: the node came back without it"]);
  });

  test("a silent attempt outlives the ack timeout on a node with deferred_start", async () => {
    const env = { TENURE_JOB_TIMEOUT_ACK_TIMEOUT_SECONDS: "1" };
    const impatient = await openJobFleet(kind, { env });
    onTestFinished(() => impatient.stop());
    const [app] = impatient.apps;
    const node = await impatient.node(app!, { features: ["deferred_start"], pools: ["silent"] });
    const plain = await impatient.node(app!, { pools: ["plain"] });
    const session = await impatient.session(app!);
    const { job_id } = await session.accepted(session.submit({ pool: "silent" }));
    const assigned = await node.assigned(1, job_id);
    const witness = await session.accepted(session.submit({ pool: "plain" }));
    // The ack timeout of the younger job passes, and costs it its attempt.
    await plain.assigned(2, witness.job_id);
    node.say("job_result", assigned, { success: true, accepted_ms_ago: 9, started_ms_ago: 8 });
    expect(await session.result({ job_id })).toMatchObject({ success: true, attempt_id: 1 });
  });
});

const attemptOf = ({ job_id, attempt_id }: { job_id: string; attempt_id: number }) => ({
  job_id,
  attempt_id,
});
