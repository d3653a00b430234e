import type { Job } from "@tenure/protocol";
import { until } from "@tenure/testing/until";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openBareJobs } from "../../testing/bare-jobs.ts";
import { HOT_STORES, openTestHot, type TestHot } from "../../testing/hot-stores.ts";
import { newJobId } from "../../testing/jobs.ts";
import type { HotStore } from "../store/hot-store.ts";
import type { RedisStore } from "../store/redis.ts";
import { bind, readBinding } from "./store/binding-store.ts";
import { jobKeys, keysOfJob } from "./store/keys.ts";

const RETENTION_MS = 3_600_000;
/** More than any submit needs. A loop in memory never lets a timer run, so a time limit would not end it. */
const CALLS_MAX = 200;

describe.each(HOT_STORES)("request ids that are used again, on %s", (kind) => {
  let store: TestHot;
  beforeAll(async () => {
    store = await openTestHot(kind);
  });
  afterAll(() => store.hot.close());

  const by = { tenant: "default", waitMs: 0 };
  const spec = (requestId: string, payload: number) => ({
    request_id: requestId,
    pool: "p",
    payload: { text: String(payload), isCompact: true },
  });
  const parsed = (job: string) => JSON.parse(job) as Job;

  test("a binding whose job has no record gives way to a job with another body", async () => {
    const requestId = "orphaned";
    const former = newJobId();
    const request = { tenant: by.tenant, requestId };
    const suitor = { ...request, jobId: former, bodyHash: "of-another-body" };
    await bind(store.hot, { ...suitor, ttlMs: RETENTION_MS });
    const jobs = openBareJobs(counted(store.hot));
    const job = parsed((await jobs.http.submit(spec(requestId, 1), by)).job);
    expect(job).toMatchObject({ state: "CREATED" });
    expect(await readBinding(store.hot, request)).toMatchObject({ jobId: job.job_id });
    await expect(jobs.http.submit(spec(requestId, 2), by)).rejects.toMatchObject({
      code: "REQUEST_ID_REUSED",
    });
  });

  test("a submit whose binding never gives way is answered, and may be tried again", async () => {
    const requestId = "stubborn";
    const suitor = { tenant: by.tenant, requestId, jobId: newJobId(), bodyHash: "h" };
    await bind(store.hot, { ...suitor, ttlMs: RETENTION_MS });
    const jobs = openBareJobs(counted(withoutFormer(store.hot)));
    await expect(jobs.http.submit(spec(requestId, 1), by)).rejects.toMatchObject({
      code: "DEPENDENCY_DOWN",
      retryable: true,
    });
  });

  test("a binding ends with the record of its job, however long the job might have taken", async () => {
    const jobs = openBareJobs(store.hot, { settings: { retentionMs: RETENTION_MS } });
    const requestId = "long";
    const request = { tenant: by.tenant, requestId };
    const submitted = await jobs.http.submit(
      { ...spec(requestId, 1), timeout_ms: 2_147_483_647 },
      by,
    );
    const { job_id } = parsed(submitted.job);
    await jobs.http.cancel(job_id, by.tenant);
    const state = async () => parsed(await jobs.http.read(job_id, by.tenant)).state;
    await until(async () => (await state()) === "RELEASED", { what: "RELEASED" });
    if (kind === "memory") {
      store.advance(RETENTION_MS - 1);
      expect(await readBinding(store.hot, request)).toMatchObject({ jobId: job_id });
      store.advance(1);
      expect(await readBinding(store.hot, request)).toBeUndefined();
      return;
    }
    const { client, prefix } = store.hot as RedisStore;
    const [binding, record] = await Promise.all([
      client.pttl(jobKeys.binding(prefix, request)),
      client.pttl(keysOfJob(prefix, job_id).fsm),
    ]);
    // On a Cluster the two expiries are set by two calls.
    expect(binding).toBeLessThanOrEqual(record + 1_000);
    expect(binding).toBeGreaterThan(record - 60_000);
  });
});

/** Refuses to go on after `CALLS_MAX` calls. */
function counted(hot: HotStore): HotStore {
  let calls = 0;
  const count = () => {
    if (++calls > CALLS_MAX) throw new Error(`more than ${CALLS_MAX} calls of the store`);
  };
  const start: HotStore["start"] = (script, keys, args) => {
    count();
    return hot.start(script, keys, args);
  };
  const startIf: HotStore["startIf"] = (when, script, keys, args) => {
    count();
    return hot.startIf(when, script, keys, args);
  };
  return { ...hot, start, startIf, run: (script, keys, args) => start(script, keys, args).reply };
}

/** A store that replaces no binding, as one of another release might. */
function withoutFormer(hot: HotStore): HotStore {
  return {
    ...hot,
    start: (script, keys, args) =>
      hot.start(script, keys, script.name === "bind-request" ? { ...args, former: "" } : args),
  };
}
