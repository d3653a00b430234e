import { until } from "@tenure/testing/until";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { disarmAll } from "../../testing/failpoints.js";
import { HOT_STORES } from "../../testing/hot-stores.ts";
import { type JobFleet, type JobNode, openJobFleet } from "../../testing/job-fleet.ts";
import type { App } from "../app.ts";

const SETTINGS = {
  TENURE_JOB_TIMEOUT_ACK_TIMEOUT_SECONDS: "600",
  TENURE_JOB_TIMEOUT_RUN_TIMEOUT_SECONDS: "600",
  TENURE_JOB_TIMEOUT_ATTEMPTS_MAX: "2",
};

describe.each(HOT_STORES)("a node whose connection breaks, on %s", (kind) => {
  let fleet: JobFleet;
  let a: App;
  let b: App;
  beforeAll(async () => {
    fleet = await openJobFleet(kind, { instances: kind === "memory" ? 1 : 2, env: SETTINGS });
    [a, b = a] = fleet.apps as [App, App?];
  });
  afterEach(async () => {
    disarmAll();
    await fleet.rest();
  });
  afterAll(() => fleet.stop());

  /** The same process again, with what it still runs. */
  const again = (at: App, node: JobNode, running: { job_id: string; attempt_id: number }[]) =>
    fleet.node(at, { of: node.key, bootId: node.bootId, running: running.map(named) });

  async function running(at: App) {
    const node = await fleet.node(at);
    const client = await fleet.session(b);
    const { job_id } = await client.accepted(client.submit());
    const assign = await node.assigned();
    node.say("job_ack", assign);
    node.say("job_started", assign);
    await fleet.reached(job_id, "RUNNING");
    return { node, client, job_id, assign };
  }

  test.each([
    "the same instance",
    "another instance",
  ])("and is back at %s within a second keeps its job", async (where) => {
    const { node, client, job_id, assign } = await running(a);
    node.socket.terminate();
    const back = await again(where === "the same instance" ? a : b, node, [assign]);
    // Longer than it would be left to the node.
    await new Promise((resolve) => setTimeout(resolve, 1_200));
    back.say("job_result", assign, { success: true, body: "done" });
    expect(await client.result({ job_id })).toMatchObject({ outcome: "succeeded", attempt_id: 1 });
    expect(back.received.filter(({ type }) => type === "job_cancel")).toEqual([]);
    expect(back.assignments()).toEqual([]);
  });

  test("and is back later has lost its attempt, which does not count", async () => {
    let { node, client, job_id, assign } = await running(a);
    // As often as attempts may count: with the second the job would be over.
    for (let lost = 1; lost <= 2; lost++) {
      node.socket.terminate();
      await until(async () => (await attemptOf(job_id)) === lost + 1, { what: "the next attempt" });
      node = await again(lost === 1 ? b : a, node, [assign]);
      await node.receive("job_cancel", ({ attempt_id }) => attempt_id === lost);
      assign = await node.assigned(1, job_id);
      expect(assign.attempt_id).toBe(lost + 1);
      node.say("job_ack", assign);
      node.say("job_started", assign);
    }
    node.say("job_result", assign, { success: true });
    expect(await client.result({ job_id })).toMatchObject({ outcome: "succeeded", attempt_id: 3 });
  });

  test("and never comes back: its attempts count", async () => {
    const { node, client, job_id } = await running(a);
    const other = await fleet.node(b);
    node.socket.terminate();
    other.say("job_ack", await other.assigned(1, job_id));
    await fleet.reached(job_id, "ACCEPTED", 2);
    other.socket.terminate();
    expect(await client.result({ job_id })).toMatchObject({ outcome: "attempts_exhausted" });
  });

  if (kind !== "memory")
    test("as its instance stops: its job goes on at once", async () => {
      const c = await fleet.start();
      const { node, client, job_id } = await running(c);
      node.socket.terminate();
      fleet.apps.splice(fleet.apps.indexOf(c), 1);
      await c.stop();
      const other = await fleet.node(a);
      other.obey();
      expect(await client.result({ job_id })).toMatchObject({
        outcome: "succeeded",
        attempt_id: 2,
      });
    });

  async function attemptOf(jobId: string): Promise<number> {
    return (await fleet.ask(b, "GET", `/jobs/${jobId}`)).body.attempt_id;
  }
});

const named = ({ job_id, attempt_id }: { job_id: string; attempt_id: number }) => ({
  job_id,
  attempt_id,
});
