import { type JobEvent, JobFailed, modelNotAvailable, Session, Worker } from "@tenure/sdk";
import {
  type RunningServer,
  startServer,
  storeSettings,
} from "@tenure/testing/fleet/running-server";
import { createDatabase, type TestDatabase } from "@tenure/testing/stores/database";
import { stores } from "@tenure/testing/stores/stores";
import { until } from "@tenure/testing/until";
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import { PATIENT } from "../prove/jobs-scene.ts";

// A real server on a busy machine.
vi.setConfig({ testTimeout: 120_000 });

type Options = ConstructorParameters<typeof Worker>[0];

describe("Session and Worker through a server", () => {
  let database: TestDatabase;
  let server: RunningServer;
  const open: { close(): Promise<void> }[] = [];
  beforeAll(async () => {
    database = await createDatabase(stores().postgresAdminUri);
    const env = { ...storeSettings({ postgresUri: database.uri }), ...PATIENT };
    server = await startServer({ env });
  });
  afterEach(async () => {
    for (const each of open.splice(0)) await each.close();
  });
  afterAll(async () => {
    await server?.stop();
    await database?.drop();
  });

  async function hire(options: Partial<Options> & Pick<Options, "pools" | "run">) {
    const worker = new Worker({ url: server.url, capacity: 4, ...options });
    open.unshift(worker);
    await until(() => worker.nodeId, { deadlineMs: 60_000, what: "the worker to be connected" });
    return worker;
  }

  function join(options: Partial<ConstructorParameters<typeof Session>[0]> = {}) {
    const session = new Session({ url: server.url, ...options });
    open.push(session);
    return session;
  }

  test("a job, its progress and its result", async () => {
    const goOn = deferred();
    const worker = await hire({
      pools: ["progress"],
      async run({ payload }, { progress }) {
        progress("half");
        await goOn.promise;
        return { echo: payload };
      },
    });
    const job = join().submit({ pool: "progress", payload: { words: ["a", "b"] } });
    const events: JobEvent[] = [];
    for await (const event of job) {
      events.push(event);
      if (event.type === "job_progress") goOn.resolve();
    }
    expect(await job).toMatchObject({
      outcome: "succeeded",
      node_id: worker.nodeId,
      body: { echo: { words: ["a", "b"] } },
    });
    expect(events).toContainEqual(expect.objectContaining({ type: "job_progress", body: "half" }));
  });

  test("a node without the model is passed over, and the next job does not try it", async () => {
    const tried: string[] = [];
    const run = (name: string) => () => {
      tried.push(name);
      if (name === "without") throw modelNotAvailable("whisper");
      return name;
    };
    const services = ["whisper"];
    await hire({ pools: ["models"], services, run: run("without") });
    const session = join();
    const first = session.submit({ pool: "models", payload: 1, service: "whisper" });
    await until(() => tried.length > 0, { deadlineMs: 60_000, what: "the first try" });
    await hire({ pools: ["models"], services, run: run("with") });
    expect((await first).body).toBe("with");
    for (let n = 0; n < 5; n++)
      expect((await session.submit({ pool: "models", payload: n, service: "whisper" })).body).toBe(
        "with",
      );
    expect(tried.filter((name) => name === "without")).toHaveLength(1);
  });

  test("an abort reaches the worker, and the job ends as cancelled", async () => {
    let reason: unknown;
    await hire({
      pools: ["slow"],
      run: (_, { signal }) =>
        new Promise((_, reject) => {
          signal.addEventListener("abort", () => {
            reason = signal.reason;
            reject(signal.reason);
          });
        }),
    });
    const stop = new AbortController();
    const job = join().submit({ pool: "slow", payload: 1, signal: stop.signal });
    for await (const event of job)
      if (event.type === "job_update" && event.state === "RUNNING") stop.abort();
    const failure = await job.catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(JobFailed);
    expect(failure).toMatchObject({ outcome: "cancelled", code: "JOB_CANCELLED" });
    await until(() => reason, { deadlineMs: 60_000, what: "the worker to hear of it" });
    expect(reason).toMatchObject({ code: "JOB_CANCELLED" });
  });

  test("a worker that closes lets its job end, and the next goes elsewhere", async () => {
    const finish = deferred();
    const leaving = await hire({
      pools: ["leaving"],
      async run() {
        await finish.promise;
        return "the first";
      },
    });
    const session = join();
    const first = session.submit({ pool: "leaving", payload: 1 });
    for await (const event of first)
      if (event.type === "job_update" && event.state === "RUNNING") break;
    const closed = leaving.close();
    const second = session.submit({ pool: "leaving", payload: 2 });
    await hire({ pools: ["leaving"], run: () => "the second" });
    expect((await second).body).toBe("the second");
    finish.resolve();
    expect((await first).body).toBe("the first");
    await closed;
  });

  test("jobs of a turn stay on one node, and the next turn is another", async () => {
    for (let n = 0; n < 3; n++)
      await hire({ pools: ["turns"], capacity: 50, run: ({ turn_id }) => turn_id });
    const session = join();
    const turns = new Set<unknown>();
    for (let round = 0; round < 5; round++) {
      const turn = session.turn();
      const jobs = Array.from({ length: 10 }, (_, n) =>
        turn.submit({ pool: "turns", payload: n, ...(n === 9 && { finalize: "manual" as const }) }),
      );
      const results = await Promise.all(jobs);
      expect(new Set(results.map(({ node_id }) => node_id)).size).toBe(1);
      expect(new Set(results.map(({ body }) => body)).size).toBe(1);
      expect(turn.ended).toBe("manual");
      turns.add(results[0]!.body);
    }
    expect(turns.size).toBe(5);
    const open = session.turn();
    await open.submit({ pool: "turns", payload: "and one" });
    await open.finalize();
    expect(open.ended).toBe("manual");
  });

  test("a session that was left can be resumed, and its result is still there", async () => {
    const finish = deferred();
    await hire({
      pools: ["later"],
      async run() {
        await finish.promise;
        return "late";
      },
    });
    const before = join();
    const job = before.submit({ pool: "later", payload: 1, requestId: "later-1" });
    for await (const event of job) if (event.type === "job_accepted") break;
    job.catch(() => {});
    const { resume } = before;
    await before.detach();
    finish.resolve();
    const after = join({ resume });
    const again = await after.submit({ pool: "later", payload: 1, requestId: "later-1" });
    expect(again.body).toBe("late");
    expect(after.id).toBe(resume?.session_id);
    expect(again.job_id).toBe(job.jobId);
  });
});

function deferred(): { promise: Promise<void>; resolve: () => void } {
  let resolve = () => {};
  const promise = new Promise<void>((done) => {
    resolve = done;
  });
  return { promise, resolve };
}
