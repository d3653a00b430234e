import { until } from "@tenure/testing/until";
import { afterEach, describe, expect, test } from "vitest";
import { HOT_STORES, type HotStoreKind } from "../../../testing/hot-stores.ts";
import { type JobFleet, openJobFleet } from "../../../testing/job-fleet.ts";
import type { App } from "../../app.ts";

const JOBS = 40;
const LARGE = "x".repeat(2_000);

describe.each(HOT_STORES)("ended jobs are bounded, on %s", (kind) => {
  let fleet: JobFleet;
  afterEach(() => fleet.stop());

  test("bodies of the oldest jobs are dropped first, and their clients get RESULT_EVICTED", async () => {
    const [a, b] = await open(kind, { TENURE_JOBS_ENDED_BYTES_MAX: "150000" });
    const client = await fleet.session(a);
    client.obey();
    const node = await fleet.node(b, { capacity: JOBS });
    const finish = async (n: number) => {
      const request = client.submit({ payload: n });
      const { job_id } = await client.accepted(request);
      const body = n === 1 ? "small" : LARGE;
      node.finish(await node.assigned(1, job_id), { success: true, body });
      expect(await client.result({ job_id })).toMatchObject({ success: true, body });
      return { ...request, job_id };
    };
    const ended = [await finish(0), await finish(1)];
    const rest = Array.from({ length: JOBS - 2 }, (_, n) => finish(n + 2));
    ended.push(...(await Promise.all(rest)));
    const read = async (n: number) => (await fleet.ask(b, "GET", `/jobs/${ended[n]!.job_id}`)).body;
    await until(async () => (await read(0)).body === undefined, { what: "room" });
    const [first, small] = [await read(0), await read(1)];
    const kept = await Promise.all(ended.map((_, n) => read(n)));
    expect(first).toMatchObject({
      outcome: "succeeded",
      state: "RELEASED",
      error: { code: "RESULT_EVICTED" },
    });
    expect(small).toMatchObject({ outcome: "succeeded", body: "small" });
    expect(kept.filter(({ body }) => body === LARGE).length).toBeGreaterThan(JOBS / 4);
    // The request id still names its job, and no other body.
    const other = await fleet.session(b);
    const { request_id, job_id } = ended[0]!;
    other.send({ type: "job_submit", pool: fleet.pool, payload: 0, request_id });
    expect(await other.accepted({ request_id })).toMatchObject({ job_id, duplicate: true });
    expect(await other.result({ job_id })).toMatchObject({
      success: false,
      outcome: "succeeded",
      error: { code: "RESULT_EVICTED" },
    });
    other.send({ type: "job_submit", pool: fleet.pool, payload: "other", request_id });
    expect(await other.error({ request_id })).toMatchObject({ code: "REQUEST_ID_REUSED" });
  }, 60_000);

  test("when records alone fill the bound, new jobs are refused until older ones are forgotten", async () => {
    const [a, b] = await open(kind, {
      TENURE_JOBS_ENDED_MAX: "5",
      TENURE_JOBS_RETENTION_SECONDS: "4",
    });
    const node = await fleet.node(b);
    node.obey();
    const requests = [];
    const submit = (at: App, request_id: string) =>
      fleet.ask(at, "POST", "/jobs?wait_ms=10000", { request_id, pool: fleet.pool, payload: 1 });
    for (let n = 0; n < 5; n++) {
      const { status, body } = await submit(a, `r-${n}`);
      expect([status, body.outcome]).toEqual([200, "succeeded"]);
      requests.push(body);
    }
    // At both instances, once the other has read the figures of the sweep.
    for (const at of [a, b]) {
      const refused = await until(
        async () => {
          const answer = await submit(at, `more-${Math.random()}`);
          return answer.status === 429 && answer.body.error;
        },
        { what: "a refusal", deadlineMs: 10_000 },
      );
      expect(refused).toMatchObject({ code: "QUEUE_FULL", retryable: true });
      expect(refused.details.retry_after_ms).toBeGreaterThanOrEqual(1_000);
      expect(refused.details.queue).toContain("ended jobs");
    }
    // A request that has its job is answered all the same.
    expect(await submit(b, "r-4")).toMatchObject({ body: { job_id: requests[4].job_id } });
    await until(async () => (await submit(b, `later-${Math.random()}`)).status === 200, {
      what: "room again",
      deadlineMs: 30_000,
    });
  }, 60_000);

  async function open(of: HotStoreKind, env: Record<string, string>): Promise<[App, App]> {
    fleet = await openJobFleet(of, { instances: of === "memory" ? 1 : 2, env });
    return [fleet.apps[0]!, fleet.apps.at(-1)!];
  }
});
