import { randomUUID } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import { until } from "@tenure/testing/until";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type JobFleet, openJobFleet } from "../../testing/job-fleet.ts";
import type { App } from "../app.ts";

/** A waiter reads the record of its job once a second. */
const LOOK_MS = 1_000;
const CALLERS = 20;

let fleet: JobFleet;
let app: App;
beforeAll(async () => {
  fleet = await openJobFleet("redis", {
    env: { TENURE_JOB_TIMEOUT_PENDING_TIMEOUT_SECONDS: "600" },
  });
  app = fleet.apps[0]!;
});
afterAll(() => fleet.stop());

async function readsSoFar(): Promise<number> {
  const text = await (await fetch(new URL("/metrics", app.url))).text();
  const found = /^scheduler_phase2_redis_op_total\{op="read-job",result="ok"\} (\d+)/m.exec(text);
  return Number(found?.[1] ?? 0);
}

test("callers that hung up while they waited for a job cost no more reads", async () => {
  const hangUp = new AbortController();
  const url = new URL("/api/v1/jobs?wait_ms=600000", app.url);
  const calls = Array.from({ length: CALLERS }, () =>
    fetch(url, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ request_id: randomUUID(), pool: "nobody", payload: 1 }),
      signal: hangUp.signal,
    }).catch((error: Error) => error.name),
  );
  await until(async () => (await readsSoFar()) >= CALLERS, { what: "callers that wait" });
  hangUp.abort();
  expect(new Set(await Promise.all(calls))).toEqual(new Set(["AbortError"]));
  // Each reads once more, to answer a caller that is not there.
  await wait(LOOK_MS / 2);
  const before = await readsSoFar();
  await wait(1.5 * LOOK_MS);
  expect((await readsSoFar()) - before).toBe(0);
});
