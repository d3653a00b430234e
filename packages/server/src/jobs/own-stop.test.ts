import { until } from "@tenure/testing/until";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { disarmAll } from "../../testing/failpoints.js";
import { holdNextAt } from "../../testing/hold-next.ts";
import { type JobFleet, openJobFleet } from "../../testing/job-fleet.ts";
import type { App } from "../app.ts";

/** Longer than the test: a job that is only found by a time-out has been forgotten. */
const PATIENT = {
  TENURE_JOB_TIMEOUT_PENDING_TIMEOUT_SECONDS: "600",
  TENURE_JOB_TIMEOUT_ACK_TIMEOUT_SECONDS: "600",
};

describe.each(["redis", "redis-cluster"] as const)("an instance that stops, on %s", (kind) => {
  let fleet: JobFleet;
  beforeAll(async () => {
    fleet = await openJobFleet(kind, { env: PATIENT });
  });
  afterEach(async () => {
    disarmAll();
    await fleet.rest();
  });
  afterAll(() => fleet.stop());

  async function stop(app: App): Promise<void> {
    fleet.apps.splice(fleet.apps.indexOf(app), 1);
    await app.stop();
  }

  test("I11: a job it was about to place runs once its node is connected elsewhere", async () => {
    const b = fleet.apps[0] as App;
    const a = await fleet.start();
    const node = await fleet.node(a);
    const placing = holdNextAt("dispatch.after-reserve");
    // The caller waits, so that HTTP keeps the instance from being over before the job goes on.
    const request = { request_id: "once", pool: fleet.pool, payload: null };
    const asked = fleet.ask(a, "POST", "/jobs?wait_ms=60000", request).catch(() => undefined);
    await placing.reached;
    const stopped = stop(a);
    await node.closed;
    placing.letGo();
    await stopped;
    await asked;
    const jobs = await fleet.ask(b, "GET", `/jobs?pool=${fleet.pool}`);
    const [job] = jobs.body.items as { job_id: string; outcome?: string }[];
    expect(job?.outcome).toBeUndefined();
    const back = await fleet.node(b, { of: node.key, bootId: node.bootId });
    back.obey();
    const read = async () => (await fleet.ask(b, "GET", `/jobs/${job!.job_id}`)).body;
    const ended = await until(async () => ((await read()).outcome ? read() : undefined), {
      what: "an end of the job",
    });
    expect(ended).toMatchObject({ outcome: "succeeded" });
    expect(ended.attempt_id).toBeLessThanOrEqual(3);
  });

  test("takes its nodes out of the selection of the other instances before it closes their sockets", async () => {
    const b = fleet.apps[0] as App;
    const a = await fleet.start();
    const node = await fleet.node(a);
    const isDraining = async () =>
      (await fleet.ask(b, "GET", `/nodes/${node.key.address}`)).body.draining === true;
    expect(await isDraining()).toBe(false);
    await stop(a);
    await until(isDraining, { what: "the node out of the selection at the other instance" });
    const back = await fleet.node(b, { of: node.key, bootId: node.bootId });
    back.obey();
    const client = await fleet.session(b);
    const { job_id } = await client.accepted(client.submit());
    expect(await client.result({ job_id })).toMatchObject({ outcome: "succeeded", attempt_id: 1 });
  });
});
