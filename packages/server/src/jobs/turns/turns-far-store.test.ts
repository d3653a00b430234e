import { type FaultProxy, startProxy } from "@tenure/testing/processes/proxy";
import { stores } from "@tenure/testing/stores/stores";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type JobFleet, openJobFleet } from "../../../testing/job-fleet.ts";
import type { App } from "../../app.ts";

/** There and back. */
const ROUND_TRIP_MS = 200;

describe(`with Redis ${ROUND_TRIP_MS} ms away`, () => {
  let proxy: FaultProxy;
  let fleet: JobFleet;
  let app: App;
  beforeAll(async () => {
    const { hostname, port } = new URL(stores().redisUrl);
    proxy = await startProxy({ targetHost: hostname, targetPort: Number(port) });
    fleet = await openJobFleet("memory", {
      env: {
        TENURE_SCHEDULER_PHASE2_ENABLED: "true",
        TENURE_SCHEDULER_PHASE2_REDIS_URL: `redis://127.0.0.1:${proxy.port}`,
        TENURE_JOB_TIMEOUT_ACK_TIMEOUT_SECONDS: "60",
      },
    });
    [app] = fleet.apps as [App];
  });
  afterAll(async () => {
    proxy.delay(0);
    await fleet.stop();
    proxy.stop();
  });

  test("60 jobs of one turn, and then 5 turns of one job: none waits for the joins of the others", async () => {
    const node = await fleet.node(app, { capacity: 100 });
    node.obey();
    const client = await fleet.session(app);
    client.obey();
    proxy.delay(ROUND_TRIP_MS / 2);
    const one = Array.from({ length: 60 }, () => client.submit({ turn: true }));
    const last = client.submit({ turn: true, finalize: "manual" });
    const single = Array.from({ length: 5 }, () =>
      client.submit({ turn: true, finalize: "manual" }),
    );
    const turns = new Map<string | undefined, number>();
    for (const request of [...one, last, ...single]) {
      const { turn_id } = await client.accepted(request);
      turns.set(turn_id, (turns.get(turn_id) ?? 0) + 1);
      expect(await client.result(request)).toMatchObject({ outcome: "succeeded" });
    }
    // In the order they were submitted.
    expect([...turns.values()]).toEqual([61, 1, 1, 1, 1, 1]);
  }, 60_000);
});
