import { type FaultProxy, startProxy } from "@tenure/testing/processes/proxy";
import { type RedisServer, startRedis } from "@tenure/testing/stores/redis";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type JobFleet, openJobFleet } from "../../testing/job-fleet.ts";

let redis: RedisServer;
let proxy: FaultProxy;
let fleet: JobFleet;

beforeAll(async () => {
  redis = await startRedis();
  proxy = await startProxy({ targetPort: redis.port });
  fleet = await openJobFleet("memory", {
    env: {
      TENURE_SCHEDULER_PHASE2_ENABLED: "true",
      TENURE_SCHEDULER_PHASE2_REDIS_URL: `redis://127.0.0.1:${proxy.port}`,
      TENURE_JOB_TIMEOUT_ATTEMPTS_MAX: "1",
      TENURE_JOB_TIMEOUT_ACK_TIMEOUT_SECONDS: "60",
    },
  });
});
afterAll(async () => {
  await fleet.stop();
  proxy.stop();
  await redis.discard();
});

test("an attempt whose dispatch was written and never sent does not count", async () => {
  const node = await fleet.node(fleet.apps[0]!, { features: ["deferred_start"] });
  const session = await fleet.session(fleet.apps[0]!);
  const marker = "its submit has no answer";
  const cut = proxy.cutAfter((request) => request.includes(marker));
  const request = session.submit({ payload: marker });
  await cut;
  expect(await session.error(request)).toMatchObject({ code: "DEPENDENCY_DOWN" });
  expect(node.assignments()).toEqual([]);

  session.submit({ payload: marker, request_id: request.request_id });
  const { job_id } = await session.accepted(request);
  const assigned = await node.assigned(1, job_id);
  expect(assigned.attempt_id).toBe(2);
  node.finish(assigned);
  expect(await session.result({ job_id })).toMatchObject({ outcome: "succeeded" });
}, 120_000);
