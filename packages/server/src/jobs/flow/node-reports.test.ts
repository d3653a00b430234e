import { TenureError } from "@tenure/protocol";
import { until } from "@tenure/testing/until";
import { expect, test } from "vitest";
import { openTestHot } from "../../../testing/hot-stores.ts";
import { NODE_A, newJob } from "../../../testing/jobs.ts";
import { createManualClock } from "../../../testing/manual-clock.ts";
import type { HotStore } from "../../store/hot-store.ts";
import type { JobsContext } from "../context.ts";
import { createLinks } from "../memory/connections.ts";
import { createBook, liveJobOf } from "../memory/tracked-jobs.ts";
import { createJob, readJob } from "../store/job-store.ts";
import { advance } from "../store/transition-store.ts";
import { createReports } from "./node-reports.ts";

test("while the store is away the newest progress of a job is kept, and no more than a little", async () => {
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
  const book = createBook();
  book.add(liveJobOf((await readJob(hot, jobId))!, { nowMs: 0, storeNowMs: 0 }));
  const links = createLinks();
  const node = { nodeId: NODE_A, epoch: 1, link: { send: () => {}, sendText: () => {} } };
  links.addNode(node);
  const told: { body: { n: number } }[] = [];
  const context = {
    ...{ hot, clock, book, links, instanceId: "i", settings: {} },
    deadlines: { set: () => {}, clear: () => {} },
    meter: { reported: () => {} },
    telling: {
      tell(_: string, frame: string) {
        const message = JSON.parse(frame);
        if (message.type === "job_progress") told.push(message);
      },
    },
  };
  const reports = createReports(context as unknown as JobsContext, {} as never);
  const about = { type: "job_progress", job_id: jobId, attempt_id: 1 } as const;
  const COUNT = 20_000;
  const filler = "x".repeat(1_000);
  isAway = true;
  reports.hear(node, { ...about, body: json({ n: 0 }) });
  await new Promise(setImmediate);
  for (let n = 1; n <= COUNT; n++) reports.hear(node, { ...about, body: json({ n, filler }) });
  isAway = false;
  const isOver = () => {
    clock.advance(2_000);
    return told.at(-1)?.body.n === COUNT;
  };
  await until(isOver, { what: "the newest progress" });
  expect(told.length).toBeLessThanOrEqual(65);
  expect(told.map(({ body }) => body.n)).toEqual(
    told.map(({ body }) => body.n).toSorted((a, b) => a - b),
  );
});

const json = (value: unknown) => ({ text: JSON.stringify(value), isCompact: true });
