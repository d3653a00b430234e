import { TenureError } from "@tenure/protocol";
import { until } from "@tenure/testing/until";
import { expect, test } from "vitest";
import { openBareJobs } from "../../../testing/bare-jobs.ts";
import { openTestHot } from "../../../testing/hot-stores.ts";
import { NODE_A, newJob } from "../../../testing/jobs.ts";
import { createManualClock } from "../../../testing/manual-clock.ts";
import type { HotStore } from "../../store/hot-store.ts";
import { trackedJobOf } from "../job.ts";
import { createConnections } from "../memory/connections.ts";
import { createPendingReports } from "../memory/pending-reports.ts";
import { createTrackedJobs } from "../memory/tracked-jobs.ts";
import type { JobsParts } from "../parts.ts";
import { createJob, readJob } from "../store/job-store.ts";
import { fillSlots, hasSlot } from "../store/slot-store.ts";
import { advance } from "../store/transition-store.ts";
import { NodeReports } from "./node-reports.ts";

test("while the store is down the newest progress reports of a job are kept, and no more than 64", async () => {
  const { hot: store } = await openTestHot("memory");
  let isAway = false;
  const hot: HotStore = {
    ...store,
    run: (script, keys, args) =>
      isAway
        ? Promise.reject(
            new TenureError("DEPENDENCY_DOWN", { dependency: "redis", reason: "away" }),
          )
        : store.run(script, keys, args),
  };
  const { jobId } = newJob();
  await createJob(hot, newJob({ jobId, sessionId: "s" }));
  const at = { jobId, attemptId: 1, nodeId: NODE_A, instanceId: "i" };
  await advance(hot, { ...at, steps: [{ event: "dispatched" }] });
  const clock = createManualClock();
  const ignore = () => {};
  const tracked = createTrackedJobs({ clock, onDue: ignore, onError: ignore });
  tracked.track(trackedJobOf((await readJob(hot, jobId))!, { nowMs: 0, storeNowMs: 0 }));
  const connections = createConnections();
  const node = { nodeId: NODE_A, epoch: 1, link: { send: () => {}, sendText: () => {} } };
  connections.addNode(node);
  const sent: { body: { n: number } }[] = [];
  const parts = {
    ...{ hot, clock, tracked, connections, instanceId: "i", settings: {} },
    metrics: { reported: () => {} },
    notifier: {
      update: ignore,
      send(_: string, frame: string) {
        const message = JSON.parse(frame);
        if (message.type === "job_progress") sent.push(message);
      },
    },
  };
  const reports = new NodeReports(
    parts as unknown as JobsParts,
    { outcomes: { startEnd: ignore }, pendingReports: createPendingReports() } as never,
    ignore,
  );
  const about = { type: "job_progress", job_id: jobId, attempt_id: 1 } as const;
  const COUNT = 20_000;
  const filler = "x".repeat(1_000);
  isAway = true;
  reports.receive(node, { ...about, body: json({ n: 0 }) });
  await new Promise(setImmediate);
  for (let n = 1; n <= COUNT; n++) reports.receive(node, { ...about, body: json({ n, filler }) });
  isAway = false;
  const isOver = () => {
    clock.advance(2_000);
    return sent.at(-1)?.body.n === COUNT;
  };
  await until(isOver, { what: "the newest progress" });
  expect(sent.length).toBeLessThanOrEqual(65);
  expect(sent.map(({ body }) => body.n)).toEqual(
    sent.map(({ body }) => body.n).toSorted((a, b) => a - b),
  );
});

test("a result for a job that waits counts only from a node with its slot that serves its tenant", async () => {
  const { hot } = await openTestHot("memory");
  const { jobId } = newJob();
  await createJob(hot, newJob({ jobId, tenant: "red" }));
  const wanted = [{ jobId, attemptId: 1 }];
  await fillSlots(hot, { nodeId: NODE_A, capacity: 1, ttlMs: 60_000, wanted });
  const jobs = openBareJobs(hot);
  const answers: unknown[] = [];
  const link = { sendText: () => {}, send: (message: object) => void answers.push(message) };
  const report = { type: "job_result", job_id: jobId, attempt_id: 1, success: true } as const;
  const reportAs = async (tenant: string) => {
    const node = { nodeId: NODE_A, epoch: 1, snapshot: { tenants: [tenant] }, link };
    jobs.nodes.reported(node, { ...report, body: json(tenant) });
    await until(() => answers.length > 0, { what: "an answer" });
    return answers.splice(0);
  };
  expect(await reportAs("blue")).toMatchObject([{ outcome: "stale" }]);
  expect((await readJob(hot, jobId))!.state).toBe("CREATED");
  expect(await reportAs("red")).toMatchObject([{ outcome: "applied" }]);
});

test("a node that registers has no slot for a job that it only names", async () => {
  const { hot: store } = await openTestHot("memory");
  const filled: unknown[] = [];
  const hot: HotStore = {
    ...store,
    run(script, keys, args) {
      if (script.name === "fill-slots") filled.push(args);
      return store.run(script, keys, args);
    },
  };
  const { jobId } = newJob();
  await createJob(hot, newJob({ jobId }));
  const jobs = openBareJobs(hot);
  const running = [{ jobId, attemptId: 1 }];
  await jobs.nodes.registering({ nodeId: NODE_A, capacity: 1, running });
  expect(filled).toEqual([]);
  const at = { jobId, attemptId: 1, nodeId: NODE_A, instanceId: "i" };
  await advance(hot, { ...at, steps: [{ event: "dispatched" }] });
  await jobs.nodes.registering({ nodeId: NODE_A, capacity: 1, running });
  expect(filled).toHaveLength(1);
  expect(await hasSlot(hot, NODE_A, { jobId, attemptId: 1 })).toBe(true);
});

const json = (value: unknown) => ({ text: JSON.stringify(value), isCompact: true });
