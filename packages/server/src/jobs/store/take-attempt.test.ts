import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { HOT_STORES, openTestHot, type TestHot } from "../../../testing/hot-stores.ts";
import { lost, NODE_A, newJob } from "../../../testing/jobs.ts";
import type { RedisStore } from "../../store/redis.ts";
import type { JobStep } from "../policy/job-table.ts";
import { createJob, readJob } from "./job-store.ts";
import { jobKeys } from "./keys.ts";
import { advance, takeAttempt } from "./transition-store.ts";

const dispatched: JobStep = { event: "dispatched" };
const taken: JobStep = { event: "dispatched", takenBy: "boot-1" };
const result: JobStep = { event: "result", outcome: "succeeded" };
const released: JobStep = { event: "released", keepMs: 60_000 };

describe.each(HOT_STORES)("an attempt that a process takes in silence, on %s", (kind) => {
  let store: TestHot;
  beforeAll(async () => {
    store = await openTestHot(kind);
  });
  afterAll(() => store.hot.close());

  async function job(...steps: JobStep[]): Promise<string> {
    const { jobId } = newJob();
    await createJob(store.hot, newJob({ jobId, attemptsMax: 9 }));
    if (steps.length > 0) await advanceBy(jobId, steps);
    return jobId;
  }
  const advanceBy = (jobId: string, steps: JobStep[], attemptId = 1) =>
    advance(store.hot, { jobId, nodeId: NODE_A, attemptId, instanceId: "i1", steps });
  const takenBy = async (jobId: string) => (await readJob(store.hot, jobId))?.takenBy;
  const take = (jobId: string, attemptId: number, bootId = "boot-2") =>
    takeAttempt(store.hot, { jobId, attemptId, bootId });

  test("it is named from DISPATCHED until the attempt is over", async () => {
    const jobId = await job(taken);
    expect(await takenBy(jobId)).toBe("boot-1");
    await advanceBy(jobId, [lost]);
    expect(await takenBy(jobId)).toBeUndefined();
    await advanceBy(jobId, [taken, result], 2);
    expect(await takenBy(jobId)).toBe("boot-1");
  });

  test("another instance notes it, for the dispatched attempt only", async () => {
    const jobId = await job(dispatched);
    await take(jobId, 2);
    expect(await takenBy(jobId)).toBeUndefined();
    await take(jobId, 1);
    expect(await takenBy(jobId)).toBe("boot-2");
    const reported = await job(dispatched, { event: "ack" });
    await take(reported, 1);
    expect(await takenBy(reported)).toBeUndefined();
    await take(newJob().jobId, 1);
  });

  test.each([
    "in one call",
    "in another",
  ])("a record that is released %s does not keep it", async (when) => {
    const jobId = await job(taken);
    if (when === "in one call") await advanceBy(jobId, [result, released]);
    else {
      await advanceBy(jobId, [result]);
      await advanceBy(jobId, [released]);
    }
    expect(await takenBy(jobId)).toBeUndefined();
    if (kind === "memory") return;
    const fsm = jobKeys.fsm(store.hot.prefix, jobId);
    expect(await (store.hot as RedisStore).client.hget(fsm, "taken")).toBe("");
  });

  test("its steps are placed by their age between the dispatch and now", async () => {
    const jobId = await job(taken);
    const steps: JobStep[] = [
      { event: "ack", agoMs: 2_147_483_647 },
      { event: "started", agoMs: 0 },
      result,
    ];
    await advanceBy(jobId, steps);
    const { timeline } = (await readJob(store.hot, jobId, { timeline: true }))!;
    const times = timeline.map(({ at }) => Date.parse(at));
    const states = timeline.map(({ state }) => state);
    expect(states.slice(-4)).toEqual(["DISPATCHED", "ACCEPTED", "RUNNING", "FINISHED"]);
    const [sent, accepted, began, ended] = times.slice(-4);
    expect(accepted).toBe(sent);
    expect(began).toBe(ended);
  });
});
