import { beforeAll, describe, expect, test } from "vitest";
import { HOT_STORES, openTestHot, type TestHot } from "../../../testing/hot-stores.ts";
import { NODE_A, NODE_B, newJob } from "../../../testing/jobs.ts";
import type { JobStep } from "../policy/job-table.ts";
import { createJob, readJob } from "./job-store.ts";
import { advance, forgiveAttempt } from "./transition-store.ts";

const dispatched: JobStep = { event: "dispatched" };
const started: JobStep = { event: "started" };
const reassign = { event: "reassign", reason: "x", counts: true, avoid: true } as const;
const nodeLost: JobStep = { ...reassign, lost: true };

describe.each(HOT_STORES)("an attempt that was ended for the loss of its node, on %s", (kind) => {
  let store: TestHot;
  beforeAll(async () => {
    store = await openTestHot(kind);
  });

  /** Attempts that each end with this step, on this node. */
  async function job(...ends: [nodeId: string, end: JobStep][]): Promise<string> {
    const { jobId } = newJob();
    await createJob(store.hot, newJob({ jobId, attemptsMax: 9 }));
    for (const [index, [nodeId, end]] of ends.entries())
      await advance(store.hot, {
        ...{ jobId, nodeId, attemptId: index + 1, instanceId: "i1" },
        steps: [dispatched, started, end],
      });
    return jobId;
  }
  const forgive = (jobId: string, attemptId: number, nodeId: string) =>
    forgiveAttempt(store.hot, { jobId, attemptId, nodeId });
  const counted = async (jobId: string) => (await readJob(store.hot, jobId))?.countedAttempts;

  test("a lost attempt is taken off the count once, for its own node only", async () => {
    const jobId = await job([NODE_A, nodeLost], [NODE_B, nodeLost], [NODE_A, nodeLost]);
    expect(await counted(jobId)).toBe(3);
    expect(await forgive(jobId, 2, NODE_A)).toBeUndefined();
    expect(await forgive(jobId, 2, NODE_B)).toBe(2);
    expect(await forgive(jobId, 2, NODE_B)).toBeUndefined();
    expect(await forgive(jobId, 1, NODE_A)).toBe(1);
    expect(await forgive(jobId, 3, NODE_A)).toBe(0);
    const record = await readJob(store.hot, jobId);
    expect(record).toMatchObject({ attemptId: 4, countedAttempts: 0, state: "CREATED" });
  });

  test("others stay counted, and so do those of a job that is over", async () => {
    const failed = await job([NODE_A, reassign], [NODE_A, { ...nodeLost, counts: false }]);
    expect(await forgive(failed, 1, NODE_A)).toBeUndefined();
    expect(await forgive(failed, 2, NODE_A)).toBeUndefined();
    expect(await counted(failed)).toBe(1);
    const over = await job(
      [NODE_A, nodeLost],
      [NODE_A, { event: "give_up", outcome: "cancelled", reason: "x" }],
    );
    expect(await forgive(over, 1, NODE_A)).toBeUndefined();
    expect(await counted(over)).toBe(1);
    expect(await forgive(newJob().jobId, 1, NODE_A)).toBeUndefined();
  });
});
