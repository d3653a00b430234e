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
});
