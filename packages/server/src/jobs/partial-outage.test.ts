import { TenureError } from "@tenure/protocol";
import { until } from "@tenure/testing/until";
import { afterAll, beforeAll, expect, test } from "vitest";
import { openBareJobs } from "../../testing/bare-jobs.ts";
import { openTestHot, type TestHot } from "../../testing/hot-stores.ts";
import type { HotStore } from "../store/hot-store.ts";

let store: TestHot;
beforeAll(async () => {
  store = await openTestHot("memory");
});
afterAll(() => store.hot.close());

/** Calls about one shard of the due index fail, as while the master of a Cluster that has it is down. */
function withoutShard(hot: HotStore): { hot: HotStore; refused: () => number } {
  let refused = 0;
  const start: HotStore["start"] = (script, keys, args) => {
    if (!Object.values<string>(keys).some((key) => key.endsWith(":due:7")))
      return hot.start(script, keys, args);
    refused += 1;
    const details = { dependency: "redis", reason: "CLUSTERDOWN" };
    return { reply: Promise.reject(new TenureError("DEPENDENCY_DOWN", details)) };
  };
  const run: HotStore["run"] = (script, keys, args) => start(script, keys, args).reply;
  return { hot: { ...hot, run, start }, refused: () => refused };
}

test("a job ends no_node in time while a part of the store stays away", async () => {
  const { hot, refused } = withoutShard(store.hot);
  const jobs = openBareJobs(hot, { settings: { pendingTimeoutMs: 1_500 } });
  jobs.start();
  try {
    const payload = { text: "1", isCompact: true };
    const spec = { request_id: "r", pool: "nowhere", payload };
    const { job } = await jobs.http.submit(spec, { tenant: "default", waitMs: 0 });
    const { job_id } = JSON.parse(job) as { job_id: string };
    await until(() => refused() > 2, { what: "failed calls" });
    await until(
      async () => JSON.parse(await jobs.http.read(job_id, "default")).outcome === "no_node",
      { deadlineMs: 15_000, what: "the end of the job" },
    );
    expect(refused()).toBeGreaterThan(2);
  } finally {
    await jobs.stop();
  }
});
