import { describe, expect, onTestFinished, vi } from "vitest";
import { nextTick } from "../../testing/connection-fixture.ts";
import {
  accepted,
  JOBS,
  reconnect,
  refusal,
  succeeded,
  test,
  welcome,
} from "../../testing/session-fixture.ts";
import { Worker } from "../worker/worker.ts";
import { type JobEvent, JobFailed } from "./job-handle.ts";
import { Session } from "./session.ts";

const [ONE, TWO] = JOBS;

describe("a job submitted by a session", () => {
  test("is sent, accepted, followed, answered and acknowledged", async ({ peer, open }) => {
    const client = open();
    const socket = await welcome(peer, client);
    const job = client.session.submit({
      pool: "asr",
      payload: { text: "hi" },
      requestId: "r-1",
      service: "whisper",
      priority: 3,
      timeoutMs: 5_000,
      traceId: "t-1",
    });
    const events: JobEvent[] = [];
    const followed = (async () => {
      for await (const event of job) events.push(event);
    })();
    expect(await socket.receive()).toEqual({
      type: "job_submit",
      request_id: "r-1",
      pool: "asr",
      payload: { text: "hi" },
      service: "whisper",
      priority: 3,
      timeout_ms: 5_000,
      trace_id: "t-1",
    });
    const sent = [
      accepted("r-1", ONE),
      { type: "job_update", job_id: ONE, state: "RUNNING", attempt_id: 1 },
      { type: "job_progress", job_id: ONE, attempt_id: 1, body: "half" },
    ];
    socket.send(...sent, succeeded("r-1", ONE, { text: "ih" }));

    expect(await job).toMatchObject({ job_id: ONE, outcome: "succeeded", body: { text: "ih" } });
    expect(job.jobId).toBe(ONE);
    expect(await socket.receive()).toEqual({ type: "job_result_ack", job_id: ONE });
    await followed;
    expect(events).toEqual(sent);
  });

  test("waits for the first connection", async ({ peer, open }) => {
    const client = open();
    const job = client.session.submit({ pool: "asr", payload: null });
    const socket = await welcome(peer, client);

    const asked = await socket.receive();
    expect(asked.request_id).toBe(job.requestId);
    socket.send(succeeded(job.requestId, ONE));
    expect((await job).body).toBe("done");
  });

  test("keeps its payload when the object changes later", async ({ peer, open }) => {
    const client = open();
    const payload = { text: "before" };
    const job = client.session.submit({ pool: "asr", payload });
    payload.text = "after";
    const socket = await welcome(peer, client);

    expect((await socket.receive()).payload).toEqual({ text: "before" });
    socket.send(succeeded(job.requestId, ONE));
    await job;
  });

  test("that failed rejects with the worker's own code", async ({ peer, open }) => {
    const client = open();
    const socket = await welcome(peer, client);
    const job = client.session.submit({ pool: "asr", payload: 1, requestId: "r-1" });
    const error = { code: "OUT_OF_INK", message: "the pen is dry" };
    socket.send({ ...succeeded("r-1", ONE), success: false, outcome: "failed", error });

    const failure = await job.catch((thrown: unknown) => thrown);
    expect(failure).toBeInstanceOf(JobFailed);
    expect(failure).toMatchObject({ ...error, outcome: "failed", requestId: "r-1" });
    expect((failure as JobFailed).result?.job_id).toBe(ONE);
  });

  test("ends once when its result arrives twice, and both are acknowledged", async ({
    peer,
    open,
  }) => {
    const client = open();
    const socket = await welcome(peer, client);
    const job = client.session.submit({ pool: "asr", payload: 1 });
    await socket.receive();
    socket.send(succeeded(job.requestId, ONE, "first"), succeeded(job.requestId, ONE, "second"));

    expect((await job).body).toBe("first");
    const ack = { type: "job_result_ack", job_id: ONE };
    expect([await socket.receive(), await socket.receive()]).toEqual([ack, ack]);
  });

  test("has one handle when it is submitted twice, and its request id is refused to another job", async ({
    peer,
    open,
  }) => {
    const client = open();
    const socket = await welcome(peer, client);
    const job = client.session.submit({ pool: "asr", payload: 1, requestId: "r-1" });

    expect(client.session.submit({ pool: "asr", payload: 1, requestId: "r-1" })).toBe(job);
    await expect(
      client.session.submit({ pool: "asr", payload: 2, requestId: "r-1" }),
    ).rejects.toMatchObject({ code: "REQUEST_ID_REUSED" });
    await socket.receive();
    socket.send(succeeded("r-1", ONE));
    await job;
    expect(socket.unread()).not.toContainEqual(expect.objectContaining({ type: "job_submit" }));
  });
});

describe("a job that cannot be submitted", () => {
  test.for([
    ["no pool", { pool: "", payload: 1 }],
    ["a priority above 9", { pool: "asr", payload: 1, priority: 10 }],
    ["a payload that is no JSON", { pool: "asr", payload: 10n }],
    ["a payload that JSON leaves out", { pool: "asr", payload: () => {} }],
    ["a payload that contains itself", { pool: "asr", payload: selfContaining() }],
  ] as const)("%s", async ([, options], { peer, open }) => {
    const client = open();
    const socket = await welcome(peer, client);

    await expect(client.session.submit(options)).rejects.toMatchObject({ code: "INVALID_REQUEST" });
    expect(socket.unread()).toEqual([]);
  });

  test("is larger than a frame", async ({ peer, open }) => {
    const client = open();
    await welcome(peer, client);

    const job = client.session.submit({ pool: "asr", payload: "x".repeat(1_100_000) });
    await expect(job).rejects.toMatchObject({ code: "PAYLOAD_TOO_LARGE" });
  });

  test("waits for room under outstandingMax, in order", async ({ peer, open }) => {
    const client = open({ outstandingMax: 2 });
    const socket = await welcome(peer, client);
    const jobs = ["r-1", "r-2", "r-3", "r-4"].map((requestId) =>
      client.session.submit({ pool: "asr", payload: requestId, requestId }),
    );
    expect([await socket.receive(), await socket.receive()]).toMatchObject([
      { request_id: "r-1" },
      { request_id: "r-2" },
    ]);
    await nextTick();
    expect(socket.unread()).toEqual([]);
    jobs[2]!.cancel();
    await expect(jobs[2]).rejects.toMatchObject({ code: "JOB_CANCELLED" });
    socket.send(succeeded("r-1", ONE));
    await jobs[0];
    expect(await socket.receive()).toMatchObject({ type: "job_result_ack" });
    expect(await socket.receive()).toMatchObject({ request_id: "r-4" });
    // Their end is the session's.
    for (const job of jobs) job.catch(() => {});
  });

  test("is refused after a minute without room, or when too many wait, without an unhandled rejection", async ({
    clock,
    peer,
    open,
  }) => {
    const client = open({ outstandingMax: 2 });
    const socket = await welcome(peer, client);
    const unhandled: unknown[] = [];
    const listen = (error: unknown) => unhandled.push(error);
    process.on("unhandledRejection", listen);
    onTestFinished(() => void process.off("unhandledRejection", listen));
    const jobs = Array.from({ length: 23 }, (_, job) =>
      client.session.submit({ pool: "asr", payload: job, requestId: `r-${job}` }),
    );
    jobs[0]!.catch(() => {});
    jobs[1]!.catch(() => {});
    await socket.receive();
    await socket.receive();
    // Two are submitted, twenty wait.
    clock.advance(30_000);
    socket.send(accepted("r-0", ONE), accepted("r-1", TWO));
    for await (const { type } of jobs[1]!) if (type === "job_accepted") break;
    await expect(jobs[22]).rejects.toMatchObject({ code: "QUEUE_FULL", details: { limit: 2 } });
    clock.advance(31_000);
    await nextTick();
    expect(unhandled).toEqual([]);
    await expect(jobs[2]).rejects.toMatchObject({ code: "QUEUE_FULL" });
  });

  test("has an id also where crypto.randomUUID is missing, as in a page over plain http", async ({
    peer,
    open,
  }) => {
    const { crypto } = globalThis;
    vi.stubGlobal("crypto", { getRandomValues: crypto.getRandomValues.bind(crypto) });
    onTestFinished(() => void vi.unstubAllGlobals());
    const client = open();
    const socket = await welcome(peer, client);
    client.session.submit({ pool: "asr", payload: 1 }).catch(() => {});
    const { request_id } = await socket.receive();
    expect(request_id).toMatch(
      /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/,
    );
    expect(() => new Worker({ url: peer.url, pools: ["p"], capacity: 1, run: () => 1 })).toThrow(
      "crypto.subtle",
    );
  });

  test.each([
    "localhost:7070",
    "",
    [],
  ])("a worker refuses the URL %j at once, as a session does", (url) => {
    expect(() => new Worker({ url, pools: ["p"], capacity: 1, run: () => 1 })).toThrow("URL");
    expect(() => new Session({ url })).toThrow("URL");
  });

  test("sends every unanswered job again, in order, under the same ids", async ({
    peer,
    clock,
    open,
  }) => {
    const client = open();
    const socket = await welcome(peer, client);
    const jobs = ["r-1", "r-2", "r-3"].map((requestId) =>
      client.session.submit({ pool: "asr", payload: requestId, requestId }),
    );
    const first = [await socket.receive(), await socket.receive(), await socket.receive()];
    socket.send(accepted("r-1", ONE), succeeded("r-2", TWO));
    await jobs[1];
    const next = await reconnect(peer, client, { socket, clock });

    expect([await next.receive(), await next.receive()]).toEqual([
      { ...first[0], again: true },
      { ...first[2], again: true },
    ]);
    next.send(accepted("r-1", ONE, { duplicate: true }), succeeded("r-1", ONE));
    next.send(succeeded("r-3", JOBS[2]));
    expect(await Promise.all(jobs)).toHaveLength(3);
  });

  test("follows a job that got a new id because the server had lost its memory", async ({
    peer,
    clock,
    open,
  }) => {
    const client = open();
    const socket = await welcome(peer, client);
    const job = client.session.submit({ pool: "asr", payload: 1, requestId: "r-1" });
    await socket.receive();
    socket.send(accepted("r-1", ONE));
    const next = await reconnect(peer, client, { socket, clock });
    await next.receive();
    const progress: unknown[] = [];
    const followed = (async () => {
      for await (const event of job) if (event.type === "job_progress") progress.push(event.body);
    })();
    const progressOf = (job_id: string, body: string) => ({
      type: "job_progress",
      job_id,
      attempt_id: 1,
      body,
    });
    next.send(
      accepted("r-1", TWO),
      progressOf(ONE, "old"),
      progressOf(TWO, "new"),
      succeeded("r-1", TWO),
    );

    expect((await job).job_id).toBe(TWO);
    await followed;
    expect(progress).toEqual(["new"]);
  });

  test("sends a job again on the same connection after a long time without news", async ({
    peer,
    clock,
    open,
  }) => {
    const client = open({ checkEveryMs: 15_000 });
    const socket = await welcome(peer, client);
    const job = client.session.submit({ pool: "asr", payload: 1, requestId: "r-1" });
    const asked = await socket.receive();
    socket.send(accepted("r-1", ONE));
    await followTo(job, "job_accepted");
    clock.advance(14_000);
    await nextTick();
    expect(socket.unread()).toEqual([]);
    clock.advance(2_000);

    expect(await socket.receive()).toEqual({ ...(asked as object), again: true });
    socket.send(succeeded("r-1", ONE));
    await job;
  });
});

describe("a refusal of the server", () => {
  test.for([
    ["DEPENDENCY_DOWN", {}, 38],
    ["INBOX_FULL", {}, 38],
    ["RATE_LIMITED", { retry_after_ms: 3_000 }, 3_038],
  ] as const)("%s: asked again after a pause", async ([code, fields, pauseMs], {
    peer,
    clock,
    open,
  }) => {
    const client = open();
    const socket = await welcome(peer, client);
    const job = client.session.submit({ pool: "asr", payload: 1, requestId: "r-1" });
    const asked = await socket.receive();
    const timers = clock.timers;
    socket.send(refusal(code, { request_id: "r-1", retryable: true, ...fields }));
    await untilTimers(clock, timers + 1);
    clock.advance(pauseMs - 2);
    await nextTick();
    expect(socket.unread()).toEqual([]);
    clock.advance(2);

    expect(await socket.receive()).toEqual({ ...(asked as object), again: true });
    socket.send(succeeded("r-1", ONE));
    await job;
  });

  test("is retried for a limited time, and then rejects the job", async ({ peer, clock, open }) => {
    const client = open({ patienceMs: 20_000 });
    const socket = await welcome(peer, client);
    const job = client.session.submit({ pool: "asr", payload: 1, requestId: "r-1" });
    const outcome = job.catch((error: unknown) => error);
    await socket.receive();
    const timers = clock.timers;
    const wait = { retryable: true, retry_after_ms: 60_000 };
    socket.send(refusal("DEPENDENCY_DOWN", { request_id: "r-1", ...wait }));
    await untilTimers(clock, timers + 1);
    clock.advance(21_000);

    expect(await outcome).toMatchObject({ code: "DEPENDENCY_DOWN" });
    clock.advance(60_000);
    await nextTick();
    expect(socket.unread()).toEqual([]);
  });

  test("that is not retryable rejects the job", async ({ peer, open }) => {
    const client = open();
    const socket = await welcome(peer, client);
    const job = client.session.submit({ pool: "asr", payload: 1, requestId: "r-1" });
    await socket.receive();
    socket.send(refusal("REQUEST_ID_REUSED", { request_id: "r-1" }));

    await expect(job).rejects.toMatchObject({ code: "REQUEST_ID_REUSED" });
  });

  test("of the token rejects waiting jobs at once", async ({ peer, open }) => {
    const client = open();
    const job = client.session.submit({ pool: "asr", payload: 1 });
    (await peer.accept()).raw.close(4401);

    await expect(job).rejects.toMatchObject({ code: "UNAUTHENTICATED" });
  });

  test("about no job is reported as a problem", async ({ peer, open }) => {
    const client = open();
    const socket = await welcome(peer, client);
    socket.send(refusal("INTERNAL", {}));

    expect(await client.problems.next()).toMatchObject({ code: "INTERNAL" });
  });
});

describe("a cancelled job", () => {
  test("is cancelled by its signal, and ends with the server's result", async ({ peer, open }) => {
    const client = open();
    const socket = await welcome(peer, client);
    const { signal, abort } = aborter();
    const job = client.session.submit({ pool: "asr", payload: 1, requestId: "r-1", signal });
    await socket.receive();
    socket.send(accepted("r-1", ONE));
    await followTo(job, "job_accepted");
    abort();

    expect(await socket.receive()).toEqual({ type: "job_cancel", job_id: ONE });
    const error = { code: "JOB_CANCELLED", message: "cancelled" };
    socket.send({ ...succeeded("r-1", ONE), success: false, outcome: "cancelled", error });
    await expect(job).rejects.toMatchObject({ code: "JOB_CANCELLED", outcome: "cancelled" });
  });

  test("without a job id is cancelled when it gets one", async ({ peer, open }) => {
    const client = open();
    const socket = await welcome(peer, client);
    const job = client.session.submit({ pool: "asr", payload: 1, requestId: "r-1" });
    await socket.receive();
    job.cancel();
    socket.send(accepted("r-1", ONE));

    expect(await socket.receive()).toEqual({ type: "job_cancel", job_id: ONE });
    socket.send(succeeded("r-1", ONE, "faster"));
    expect((await job).body).toBe("faster");
  });

  test("that was not sent is never sent", async ({ peer, open }) => {
    const client = open();
    const { signal, abort } = aborter();
    const job = client.session.submit({ pool: "asr", payload: 1, signal });
    abort();

    await expect(job).rejects.toMatchObject({ outcome: "cancelled" });
    await expect(client.session.submit({ pool: "asr", payload: 1, signal })).rejects.toMatchObject({
      outcome: "cancelled",
    });
    const socket = await welcome(peer, client);
    await nextTick();
    expect(socket.unread()).toEqual([]);
  });

  test("is cancelled again until the server answers", async ({ peer, clock, open }) => {
    const client = open();
    const socket = await welcome(peer, client);
    const job = client.session.submit({ pool: "asr", payload: 1, requestId: "r-1" });
    await socket.receive();
    socket.send(accepted("r-1", ONE));
    await followTo(job, "job_accepted");
    job.cancel();
    await socket.receive();
    clock.advance(3_000);

    expect(await socket.receive()).toEqual({ type: "job_cancel", job_id: ONE });
    socket.send(refusal("NOT_FOUND", { job_id: ONE }));
    await expect(job).rejects.toMatchObject({ outcome: "cancelled" });
  });
});

describe("a session that ends", () => {
  test("sends session_close and rejects its jobs", async ({ peer, open }) => {
    const client = open();
    const socket = await welcome(peer, client);
    const job = client.session.submit({ pool: "asr", payload: 1 });
    const outcome = job.catch((error: unknown) => error);
    await socket.receive();
    await client.session.close();

    expect(await socket.receive()).toEqual({ type: "session_close" });
    expect(await outcome).toMatchObject({ code: "CONFLICT" });
    await expect(client.session.submit({ pool: "asr", payload: 1 })).rejects.toMatchObject({
      code: "CONFLICT",
    });
  });

  test("leaves no timer behind", async ({ peer, clock, open }) => {
    const client = open();
    const before = clock.timers;
    await welcome(peer, client);
    const job = client.session.submit({ pool: "asr", payload: 1 });
    const outcome = job.catch(() => {});
    await client.session.close();
    await outcome;

    expect(clock.timers).toBeLessThanOrEqual(before);
  });

  test("by detach keeps its credentials", async ({ peer, open }) => {
    const client = open();
    const socket = await welcome(peer, client);
    await client.session.detach();
    await socket.closed;

    expect(socket.unread()).toEqual([]);
    expect(client.session.resume?.session_id).toBe(client.session.id);
  });
});

function aborter() {
  const controller = new AbortController();
  return { signal: controller.signal, abort: () => controller.abort() };
}

async function followTo(job: AsyncIterable<JobEvent>, type: JobEvent["type"]): Promise<void> {
  for await (const event of job) if (event.type === type) return;
}

/** What a frame has brought about is seen by the timer it has set. */
async function untilTimers(clock: { timers: number }, count: number): Promise<void> {
  while (clock.timers < count) await nextTick();
}

function selfContaining(): object {
  const value: { self?: object } = {};
  value.self = value;
  return value;
}

describe("a job whose answer was not read", () => {
  test("is sent again after the process was suspended for longer than patienceMs", async ({
    clock,
    peer,
    open,
  }) => {
    const client = open();
    const socket = await welcome(peer, client);
    const job = client.session.submit({ pool: "asr", payload: 1, requestId: "r-1" });
    await socket.receive();
    socket.send(accepted("r-1", ONE));
    for await (const event of job) if (event.type === "job_accepted") break;
    clock.freeze(65_000);
    expect(await socket.receive()).toMatchObject({ request_id: "r-1", again: true });
    socket.send(succeeded("r-1", ONE));
    expect(await job).toMatchObject({ body: "done" });
  });

  test("times out when the process is late again without an answer", async ({
    clock,
    peer,
    open,
  }) => {
    const client = open();
    const socket = await welcome(peer, client);
    const job = client.session.submit({ pool: "asr", payload: 1, requestId: "r-1" });
    await socket.receive();
    clock.freeze(65_000);
    await socket.receive();
    clock.freeze(65_000);
    await expect(job).rejects.toMatchObject({ code: "DEPENDENCY_DOWN" });
  });

  test("ends with the parse error of its result, which is acknowledged", async ({ peer, open }) => {
    const client = open();
    const socket = await welcome(peer, client);
    const job = client.session.submit({ pool: "asr", payload: 1, requestId: "r-1" });
    await socket.receive();
    const error = { code: "ATTEMPTS_EXHAUSTED", message: "half a character: \ud83d" };
    const failed = { ...succeeded("r-1", ONE), success: false, outcome: "attempts_exhausted" };
    socket.send(accepted("r-1", ONE), { ...failed, error });
    await expect(job).rejects.toMatchObject({
      code: "INVALID_MESSAGE",
      message: expect.stringContaining("half a character"),
    });
    expect(await socket.receive()).toEqual({ type: "job_result_ack", job_id: ONE });
  });
});
