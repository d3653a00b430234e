import { Job } from "@tenure/protocol";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openBareJobs } from "../../../testing/bare-jobs.ts";
import { HOT_STORES, openTestHot, type TestHot } from "../../../testing/hot-stores.ts";
import { NODE_A, newJob } from "../../../testing/jobs.ts";
import type { HotStore } from "../../store/hot-store.ts";
import { bind } from "../store/binding-store.ts";
import { createJob } from "../store/job-store.ts";
import { addRecent } from "../store/recent-store.ts";
import { advance } from "../store/transition-store.ts";

const BODY = JSON.stringify("x".repeat(250_000));
const ERROR = { code: "E_MODEL", message: "it broke" };

describe.each(HOT_STORES)("lists of jobs, on %s", (kind) => {
  let store: TestHot;
  beforeAll(async () => {
    store = await openTestHot(kind);
  });
  afterAll(() => store.hot.close());

  async function end(outcome: "succeeded" | "failed", result: string) {
    const job = newJob();
    await createJob(store.hot, job);
    await bind(store.hot, { ...job, ttlMs: 60_000 });
    await addRecent(store.hot, [job], { keepMs: 60_000 });
    await advance(store.hot, {
      ...{ jobId: job.jobId, attemptId: 1, nodeId: NODE_A, instanceId: "i1" },
      steps: [{ event: "dispatched" }, { event: "result", outcome }],
      result,
    });
    return job;
  }

  test("have neither bodies nor timelines, and do not read them", async () => {
    const large = await end("succeeded", `{"body":${BODY}}`);
    const failed = await end("failed", `{"error":${JSON.stringify(ERROR)}}`);
    const both = await end("failed", `{"body":${BODY},"error":${JSON.stringify(ERROR)}}`);
    const { hot, sizes } = measured(store.hot);
    const jobs = openBareJobs(hot);
    const { items } = await jobs.http.list({ tenant: "default", limit: 500 });
    const named = { tenant: "default", limit: 1, request_id: large.requestId };
    const [one] = (await jobs.http.list(named)).items;
    expect(Math.max(...sizes)).toBeLessThan(10_000);
    expect(items.map(({ job_id }) => job_id).sort()).toEqual(
      [large, failed, both].map(({ jobId }) => jobId).sort(),
    );
    for (const item of [...items, one!]) {
      expect(item).not.toHaveProperty("body");
      expect(item).toMatchObject({ state: "FINISHED", timeline: [], node_id: NODE_A });
      expect(Date.parse(item.ended_at!)).toBeGreaterThanOrEqual(Date.parse(item.created_at));
    }
    const errors = new Map(items.map(({ job_id, error }) => [job_id, error]));
    expect(errors.get(failed.jobId)).toEqual(ERROR);
    expect(errors.get(large.jobId)).toBeUndefined();
    // A job that is read by its id has everything.
    const job = Job.parse(JSON.parse(await jobs.http.read(both.jobId, "default")));
    expect(job).toMatchObject({ body: JSON.parse(BODY), error: ERROR });
    expect(job.timeline.map(({ state }) => state)).toEqual(["CREATED", "DISPATCHED", "FINISHED"]);
  });
});

/** How much the store answered to each call. */
function measured(hot: HotStore): { hot: HotStore; sizes: number[] } {
  const sizes: number[] = [];
  const run: HotStore["run"] = async (script, keys, args) => {
    const reply = await hot.run(script, keys, args);
    sizes.push(JSON.stringify(reply).length);
    return reply;
  };
  return { hot: { ...hot, run }, sizes };
}
