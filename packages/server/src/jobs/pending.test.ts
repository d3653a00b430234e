import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { type JobFleet, openJobFleet } from "../../testing/job-fleet.ts";
import type { App } from "../app.ts";

describe("a job with its own limit of waiting for a node", () => {
  let fleet: JobFleet;
  let app: App;
  const start = async (seconds: string) => {
    const env = { TENURE_JOB_TIMEOUT_PENDING_TIMEOUT_SECONDS: seconds };
    fleet = await openJobFleet("memory", { env });
    [app] = fleet.apps as [App];
  };
  afterAll(() => fleet.stop());
  afterEach(() => fleet.rest());

  describe("where others wait for ten minutes", () => {
    beforeAll(() => start("600"));

    test("ends sooner, over a socket and over HTTP", async () => {
      const client = await fleet.session(app);
      const request = client.submit({ pending_ms: 100 });
      const spec = { request_id: "r", pool: fleet.pool, payload: null, pending_ms: 100 };
      const asked = await fleet.ask(app, "POST", "/jobs?wait_ms=20000", spec);
      expect(asked).toMatchObject({ status: 200, body: { outcome: "no_node" } });
      expect(await client.result(request)).toMatchObject({
        outcome: "no_node",
        error: { code: "NO_AVAILABLE_NODE" },
      });
      // Asked for again with another patience it is the same request.
      const again = await fleet.ask(app, "POST", "/jobs", { ...spec, pending_ms: 200 });
      expect(again.body).toMatchObject({ job_id: asked.body.job_id });
    });

    test("a submit with an invalid pending_ms is refused", async () => {
      for (const pending_ms of [0, -1, 1.5, 3_600_001, "10"]) {
        const spec = { request_id: "n", pool: fleet.pool, payload: null, pending_ms };
        const { status, body } = await fleet.ask(app, "POST", "/jobs", spec);
        expect([status, body.error.code]).toEqual([400, "INVALID_REQUEST"]);
      }
    });

    test("where others wait for two seconds: waits longer", async () => {
      await fleet.stop();
      await start("2");
      const client = await fleet.session(app);
      const patient = await client.accepted(client.submit({ pending_ms: 60_000 }));
      const hasty = client.submit();
      expect(await client.result(hasty)).toMatchObject({ outcome: "no_node" });
      const node = await fleet.node(app);
      node.obey();
      expect(await client.result({ job_id: patient.job_id })).toMatchObject({
        outcome: "succeeded",
      });
    });
  });
});
