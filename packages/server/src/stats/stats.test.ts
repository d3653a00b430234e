import { Stats } from "@tenure/protocol";
import { until } from "@tenure/testing/until";
import { expect, test } from "vitest";
import { createManualClock } from "../../testing/manual-clock.ts";
import { silentLog } from "../kernel/log.ts";
import { EVERYTHING } from "../kernel/scope.ts";
import { createTelemetry } from "../telemetry.ts";
import { createStats } from "./stats.ts";

const INTERVAL_MS = 5_000;

test("the stats have a point per interval, from the metrics", async () => {
  const { stats, next, telemetry } = begin();
  const { jobsFinished: ended, jobDispatchSeconds: dispatch } = telemetry;
  ended.inc({ outcome: "succeeded" }, 7); // before the first reading: part of no interval
  stats.start();
  await next(0);
  ended.inc({ outcome: "succeeded" }, 4);
  ended.inc({ outcome: "failed" }, 2);
  for (let count = 0; count < 100; count++) dispatch.observe(count < 90 ? 0.005 : 0.5);
  await next(1);
  await next(2);
  const read = Stats.parse(await stats.read(EVERYTHING));
  const [busy, quiet] = read.points;
  expect(busy).toMatchObject({ ended: { succeeded: 4, failed: 2 }, claimed: 0 });
  expect(busy!.dispatch_ms!.p50).toBeLessThan(10);
  expect(busy!.dispatch_ms!.p99).toBeGreaterThan(100);
  expect(quiet).toMatchObject({ ended: {}, dispatch_ms: null });
  expect(read.jobs.ended).toMatchObject({ succeeded: 11, failed: 2, timed_out: 0 });
  await stats.stop();
});

test("the stats keep a quarter of an hour, and publish the newest point to followers", async () => {
  const { stats, next, published } = begin({ followed: true });
  stats.start();
  for (let interval = 0; interval <= 200; interval++) await next(interval);
  expect((await stats.read(EVERYTHING)).points).toHaveLength(180);
  expect(published.at(-1)?.points).toHaveLength(1);
  await stats.stop();
});

test("the stats of an idle instance are zero", async () => {
  const { stats } = begin();
  const read = Stats.parse(await stats.read(EVERYTHING));
  expect(read).toMatchObject({
    points: [],
    jobs: { waiting: 0, running: 0 },
    nodes: { online: 0 },
  });
});

/** `next` moves the clock by one interval and waits until that many points are there. */
function begin({ followed = false } = {}) {
  const telemetry = createTelemetry();
  const clock = createManualClock();
  const published: Stats[] = [];
  let steps = 0;
  const stats = createStats({
    instanceId: "i-1",
    telemetry,
    clock: {
      ...clock,
      sleep(ms, signal) {
        steps += 1;
        return clock.sleep(ms, signal);
      },
    },
    log: silentLog,
    nodes: () => [],
    away: async () => 0,
    deployments: async () => ({ enabled: 0, unassigned: 0, running: 0, failing: 0 }),
    letters: async () => 0,
    open: () => ({ waiting: 0, running: 0, sessions: 0 }),
    followers: () => (followed ? [EVERYTHING] : []),
    publish: (_, item) => published.push(item),
  });
  async function next(interval: number): Promise<void> {
    if (interval > 0) clock.advance(INTERVAL_MS);
    await until(() => steps > interval, { what: `interval ${interval}`, everyMs: 1 });
  }
  return { stats, next, published, telemetry };
}
