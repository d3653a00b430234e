import { until } from "@tenure/testing/until";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { armFailpoint, disarmAll } from "../../testing/failpoints.js";
import { holdNextAt } from "../../testing/hold-next.ts";
import { type JobFleet, openJobFleet } from "../../testing/job-fleet.ts";
import type { App } from "../app.ts";

/** Longer than any test: a timeout would show that the loss of the node was missed. */
const NEVER = {
  TENURE_JOB_TIMEOUT_ACK_TIMEOUT_SECONDS: "600",
  TENURE_JOB_TIMEOUT_RUN_TIMEOUT_SECONDS: "600",
};

let fleet: JobFleet;
let a: App;
let b: App;

describe("a node that is lost", () => {
  beforeAll(async () => {
    fleet = await openJobFleet("redis", { instances: 2, env: NEVER });
    [a, b] = fleet.apps as [App, App];
  });
  afterEach(async () => {
    disarmAll();
    await fleet.rest();
  });
  afterAll(() => fleet.stop());

  test("while a job is on its way to it: the job goes to another one at once", async () => {
    const lost = await fleet.node(a);
    const client = await fleet.session(b);
    const sending = holdNextAt("dispatch.after-dispatched");
    const { job_id } = await client.accepted(client.submit());
    await sending.reached;
    const other = await fleet.node(a);
    await lost.close();
    other.finish(await other.assigned(1, job_id));
    expect(await client.result({ job_id })).toMatchObject({ outcome: "succeeded", attempt_id: 2 });
    sending.letGo();
    expect(await reasonsOf(a, job_id)).toEqual(["its node was lost"]);
  });

  test("while its instance takes up a job for it: that one does not believe that it has the job", async () => {
    const lost = await fleet.node(a);
    const client = await fleet.session(b);
    const takingUp = holdNextAt("take-up.after-read");
    const { job_id } = await client.accepted(client.submit());
    await takingUp.reached;
    const other = await fleet.node(a);
    await lost.close();
    const second = await other.assigned(1, job_id);
    await until(async () => (await liveJobs(a)) === 1, { what: "the job to be tracked" });
    takingUp.letGo();
    other.finish(second);
    expect(await client.result({ job_id })).toMatchObject({ outcome: "succeeded", attempt_id: 2 });
    await until(async () => (await liveJobs(a)) === 0, { what: "no job to be tracked" });
  });

  test("and the instance does not get to its jobs: they are found when their slots run out", async () => {
    const c = await openJobFleet("memory", { env: NEVER });
    try {
      const [app] = c.apps as [App];
      const lost = await c.node(app);
      const client = await c.session(app);
      const { job_id } = await client.accepted(client.submit());
      lost.say("job_ack", await lost.assigned());
      await c.reached(job_id, "ACCEPTED");
      armFailpoint("node.after-leave", () => {
        throw new Error("planted");
      });
      await lost.close();
      const other = await c.node(app);
      other.obey();
      expect(await client.result({ job_id })).toMatchObject({ outcome: "succeeded" });
      expect(await reasonsOf(app, job_id)).toEqual(["its node was lost: its slot expired"]);
    } finally {
      await c.stop();
    }
  });
});

/** Why the attempts before the last one ended. */
async function reasonsOf(at: App, jobId: string): Promise<string[]> {
  const { body } = await fleet.ask(at, "GET", `/jobs/${jobId}`);
  const timeline = body.timeline as { state: string; reason?: string }[];
  return timeline.flatMap(({ state, reason }) => (state === "CREATED" && reason ? [reason] : []));
}

/** The jobs this instance believes to look after. */
async function liveJobs(at: App): Promise<number> {
  const figures = await (await fetch(new URL("/metrics", at.url))).text();
  return Number(/^tenure_job_live\S* (\d+)$/m.exec(figures)?.[1]);
}
