import { until } from "@tenure/testing/until";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
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
});

const attemptOf = ({ job_id, attempt_id }: { job_id: string; attempt_id: number }) => ({
  job_id,
  attempt_id,
});
