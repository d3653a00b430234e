import { TenureError } from "@tenure/protocol";
import { until } from "@tenure/testing/until";
import { expect, test } from "vitest";
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
      send(_: string, frame: string) {
        const message = JSON.parse(frame);
        if (message.type === "job_progress") sent.push(message);
      },
    },
  };
  const reports = new NodeReports(
    parts as unknown as JobsParts,
    { pendingReports: createPendingReports() } as never,
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

const json = (value: unknown) => ({ text: JSON.stringify(value), isCompact: true });
