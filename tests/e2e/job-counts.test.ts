import { Session, Worker } from "@tenure/sdk";
import {
  countFrames,
  type FrameCounter,
  type FrameCounts,
  framesOfJobs,
} from "@tenure/testing/fleet/frame-counts";
import {
  type RunningServer,
  startServer,
  storeSettings,
} from "@tenure/testing/fleet/running-server";
import { createDatabase, type TestDatabase } from "@tenure/testing/stores/database";
import { uniqueKeyPrefix } from "@tenure/testing/stores/redis";
import { stores } from "@tenure/testing/stores/stores";
import { PLAIN_SERVER } from "@tenure/testing/tls-run";
import { until } from "@tenure/testing/until";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { PATIENT } from "../prove/jobs-scene.ts";

// A real server on a busy machine.
vi.setConfig({ testTimeout: 120_000 });

const JOBS: Record<number, number> = { 1: 300, 128: 1_000 };
/** Without the lists of acknowledgements and the starts that a slow machine causes. */
const FRAMES_MAX = 5.05;
const TRIES_MAX = 10;
const WRITES_MAX: Record<number, number> = { 1: 9, 128: 0.3 };

describe.each(["memory", "redis"] as const)("frames per short job, on %s", (kind) => {
  let database: TestDatabase;
  let server: RunningServer;
  let counter: FrameCounter;
  let session: Session;
  let worker: Worker;
  beforeAll(async () => {
    const { postgresAdminUri, redisUrl } = stores();
    database = await createDatabase(postgresAdminUri);
    const env = {
      ...storeSettings({ postgresUri: database.uri, ...(kind === "redis" && { redisUrl }) }),
      ...(kind === "redis" && { TENURE_SCHEDULER_PHASE2_REDIS_KEY_PREFIX: uniqueKeyPrefix() }),
      ...PATIENT,
      ...PLAIN_SERVER,
    };
    server = await startServer({ env });
    counter = await countFrames(server.url);
    const { url } = counter;
    worker = new Worker({ url, pools: ["echo"], capacity: 256, run: ({ payload }) => payload });
    session = new Session({ url });
    await until(() => worker.nodeId, { deadlineMs: 60_000, what: "the worker to be connected" });
    await run(100, 1);
    await run(100, 128);
    counter.take();
  });
  afterAll(async () => {
    await session?.close();
    await worker?.close();
    await counter?.close();
    await server?.stop();
    await database?.drop();
  });

  /** The next job of each caller as soon as its last one has ended. */
  async function run(jobs: number, atOnce: number): Promise<FrameCounts> {
    let left = jobs;
    const caller = async () => {
      while (left-- > 0) await session.submit({ pool: "echo", payload: "x".repeat(200) });
    };
    await Promise.all(Array.from({ length: atOnce }, caller));
    // Frames arrive in order: what the session sends about the jobs has passed before this one.
    await session.submit({ pool: "echo", payload: "the last" });
    await until(() => worker.held === 0, { what: "the acknowledgement of every result" });
    return counter.take();
  }

  /** A worker whose jobs take longer than 20 ms reports their starts for a while: on a busy machine some do. */
  async function runUndisturbed(jobs: number, atOnce: number) {
    for (let tries = 1; ; tries++) {
      const startedMs = performance.now();
      const counts = await run(jobs, atOnce);
      const tookMs = performance.now() - startedMs;
      const started = counts.frames["client node job_started"] ?? 0;
      if (started <= jobs / 2 || tries === TRIES_MAX) return { counts, tookMs };
    }
  }

  test.each([1, 128])("at %i at once", async (atOnce) => {
    const jobs = JOBS[atOnce]!;
    const { counts, tookMs } = await runUndisturbed(jobs, atOnce);
    const shown = JSON.stringify(counts);
    const {
      "server node acks": toNode = 0,
      "client session acks": ofSession = 0,
      "client node job_started": started = 0,
    } = counts.frames;
    const rest = framesOfJobs(counts) - toNode - ofSession - started;
    expect(rest / jobs, shown).toBeLessThanOrEqual(FRAMES_MAX);
    expect(started, shown).toBeLessThanOrEqual(jobs / 2);
    // Acknowledgements without a frame to go along with: at most one list in 20 ms, on however slow a machine.
    expect(toNode, shown).toBeLessThanOrEqual(tookMs / 20 + 1);
    expect(ofSession, shown).toBeLessThanOrEqual(tookMs / 20 + 1);
    // The frames of one tick are one write: at 128 at once dozens of jobs share it.
    const writes = counts.writes.client + counts.writes.server;
    expect(writes / jobs, shown).toBeLessThanOrEqual(WRITES_MAX[atOnce]!);
    console.log(`${kind}, ${atOnce} at once: ${framesOfJobs(counts) / jobs} frames per job`);
  });
});
