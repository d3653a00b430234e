import { until } from "@tenure/testing/until";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { disarmAll } from "../../testing/failpoints.js";
import { holdNextAt } from "../../testing/hold-next.ts";
import { HOT_STORES } from "../../testing/hot-stores.ts";
import { type JobFleet, openJobFleet } from "../../testing/job-fleet.ts";
import type { App } from "../app.ts";

let fleet: JobFleet;

/** Every point between two steps where an instance may stop, after which no client has to retry. */
const STEPS = [
  "submit.after-due",
  "submit.after-binding",
  "dispatch.after-reserve",
  "dispatch.after-dispatched",
  "result.after-finished",
  "result.after-freed",
  "result.after-released",
  "result.after-delivered",
];

describe.each(HOT_STORES)("an instance that stops between two steps, on %s", (kind) => {
  beforeAll(async () => {
    fleet = await openJobFleet(kind, {
      instances: kind === "memory" ? 1 : 2,
      env: { TENURE_JOB_TIMEOUT_ACK_TIMEOUT_SECONDS: "3" },
    });
  });
  afterEach(async () => {
    disarmAll();
    await fleet.rest();
  });
  afterAll(() => fleet.stop());

  test("I5, I11: each job ends once, its slot is free, and nothing is left in the index", async () => {
    const [a, b = a] = fleet.apps as [App, App?];
    const node = await fleet.node(b, { capacity: 20 });
    node.obey();
    const client = await fleet.session(a);
    client.obey();
    const jobs = new Map<string, { request_id: string }>();
    for (const step of STEPS) {
      const { reached } = holdNextAt(step); // for good
      jobs.set(step, client.submit({ payload: step }));
      await reached;
    }
    for (const [step, request] of jobs) {
      const result = await client.result(request);
      expect(result, step).toMatchObject({ outcome: "succeeded", body: "done" });
      await until(
        async () => (await fleet.ask(a, "GET", `/jobs/${result.job_id}`)).body.state === "RELEASED",
        { what: `RELEASED after ${step}`, deadlineMs: 60_000 },
      );
    }
    await until(
      async () => (await fleet.ask(b, "GET", `/nodes/${node.key.address}`)).body.reserved === 0,
      { what: "free slots" },
    );
    const applied = node.received.filter(
      (message) => message.type === "job_result_ack" && message.outcome === "applied",
    );
    expect(applied).toHaveLength(STEPS.length);
  }, 300_000);
});
