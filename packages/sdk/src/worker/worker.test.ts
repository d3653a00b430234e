import { describe, expect } from "vitest";
import { nextTick } from "../../testing/connection-fixture.ts";
import { createNodeKey } from "../../testing/node-fixture.ts";
import {
  admit,
  assign,
  JOB,
  OTHER_JOB,
  received,
  resultAck,
  test,
  unsaid,
} from "../../testing/worker-fixture.ts";
import { modelNotAvailable } from "./job-failure.ts";
import { closeOnSignal, Worker } from "./worker.ts";

const held = { job_id: JOB, attempt_id: 1 };
const other = { job_id: OTHER_JOB, attempt_id: 1 };

describe("a worker", () => {
  test("registers its pools and capacity, under a key of its own", async ({ peer, hire }) => {
    const hired = hire({
      pools: ["asr", "tts"],
      capacity: 3,
      services: ["whisper"],
      labels: { zone: "x" },
      name: "ada",
      version: "1.2.3",
      token: "SECRET",
    });
    const { registered } = await admit(peer, hired);

    expect(registered).toMatchObject({
      pools: ["asr", "tts"],
      capacity: 3,
      services: ["whisper"],
      labels: { zone: "x" },
      name: "ada",
      version: "1.2.3",
      token: "SECRET",
      running: [],
    });
    expect(hired.worker.nodeId).toBe(registered.address);
    const twin = hire();
    expect((await admit(peer, twin)).registered.address).not.toBe(registered.address);
  });

  test("uses the key it is given", async ({ peer, hire }) => {
    const key = createNodeKey();

    expect((await admit(peer, hire({ key }))).registered.address).toBe(key.address);
  });

  test("takes a job, runs it, and keeps the result until it is acknowledged", async ({
    peer,
    hire,
  }) => {
    const hired = hire();
    const { socket } = await admit(peer, hired);
    socket.send(assign({ turn_id: JOB, trace_id: "t-1" }));
    expect(await received(socket)).toEqual({ type: "job_ack", ...held });
    expect(await received(socket)).toEqual({ type: "job_started", ...held });
    const { job, context, resolve } = await hired.runs.next();
    expect(job).toMatchObject({ ...held, payload: "hi", pool: "asr", trace_id: "t-1" });
    context.progress({ done: 0.5 });
    expect(await received(socket)).toEqual({ type: "job_progress", ...held, body: { done: 0.5 } });
    resolve({ text: "ih" });

    expect(await received(socket)).toEqual({
      type: "job_result",
      ...held,
      success: true,
      body: { text: "ih" },
    });
    expect(hired.worker.held).toBe(1);
    socket.send(resultAck());
    await untilHeld(hired.worker, 0);
  });

  test("refuses a capacity below 1", () => {
    const options = { url: "http://127.0.0.1:1", pools: ["asr"], run: () => {} };
    expect(() => new Worker({ ...options, capacity: 0 })).toThrow("capacity");
  });
});

describe("a job that fails", () => {
  test.for([
    ["by an error", new TypeError("no such word"), { code: "INTERNAL", message: "no such word" }],
    [
      "with a code of its own",
      Object.assign(new Error("dry"), { code: "OUT_OF_INK", retryable: true }),
      { code: "OUT_OF_INK", message: "dry", retryable: true },
    ],
    [
      "because the model is not here",
      modelNotAvailable("whisper"),
      {
        code: "MODEL_NOT_AVAILABLE",
        message: "service whisper is not available",
        retryable: true,
        service: "whisper",
      },
    ],
    ["by something that is no error", "just words", { code: "INTERNAL", message: "just words" }],
    [
      "with words no store takes",
      new Error("a\0b\ud800"),
      { code: "INTERNAL", message: "a\ufffdb\ufffd" },
    ],
  ] as const)("%s", async ([, thrown, error], { peer, hire }) => {
    const hired = hire();
    const { socket } = await admit(peer, hired);
    socket.send(assign());
    (await hired.runs.next()).reject(thrown);
    await received(socket);
    await received(socket);

    expect(await received(socket)).toEqual({ type: "job_result", ...held, success: false, error });
  });

  test.for([
    ["no JSON", 10n, "INTERNAL"],
    ["too large", "x".repeat(1_100_000), "PAYLOAD_TOO_LARGE"],
  ] as const)("because its result is %s", async ([, body, code], { peer, hire }) => {
    const hired = hire();
    const { socket } = await admit(peer, hired);
    socket.send(assign());
    (await hired.runs.next()).resolve(body);
    await received(socket);
    await received(socket);

    expect(await received(socket)).toMatchObject({ success: false, error: { code } });
  });
});

describe("a job that comes again", () => {
  test("that is known is answered with its state", async ({ peer, hire }) => {
    const hired = hire();
    const { socket } = await admit(peer, hired);
    socket.send(assign(), assign());
    const { resolve } = await hired.runs.next();
    const answers = [await received(socket), await received(socket), await received(socket)];
    expect(answers.map(({ type }) => type)).toEqual(["job_ack", "job_started", "job_started"]);
    resolve("done");
    const result = await received(socket);
    socket.send(assign());

    expect(await received(socket)).toEqual(result);
    expect(hired.runs.rest()).toEqual([]);
  });

  test("as a newer attempt replaces the older, whose result is discarded", async ({
    peer,
    hire,
  }) => {
    const hired = hire();
    const { socket } = await admit(peer, hired);
    socket.send(assign());
    const older = await hired.runs.next();
    expect(older.context.signal.aborted).toBe(false);
    socket.send(assign({ attempt_id: 2 }));
    const newer = await hired.runs.next();
    expect(older.context.signal.aborted).toBe(true);
    older.resolve("old");
    socket.send(assign()); // late news of the first attempt
    socket.send(assign({ ...other, request_id: "r-2" }));
    await hired.runs.next();
    newer.resolve("new");

    const messages = [];
    for (let n = 0; n < 7; n++) messages.push(await received(socket));
    expect(messages.map(({ type, job_id, attempt_id }) => [type, job_id, attempt_id])).toEqual([
      ["job_ack", JOB, 1],
      ["job_started", JOB, 1],
      ["job_ack", JOB, 2],
      ["job_started", JOB, 2],
      ["job_ack", OTHER_JOB, 1],
      ["job_started", OTHER_JOB, 1],
      ["job_result", JOB, 2],
    ]);
    expect(messages.at(-1)).toMatchObject({ body: "new" });
  });
});

describe("a result that is not acknowledged", () => {
  test("is sent again on the next connection, with the state of running jobs", async ({
    peer,
    clock,
    hire,
  }) => {
    const hired = hire();
    const { socket } = await admit(peer, hired);
    socket.send(assign(), assign({ ...other, request_id: "r-2" }));
    (await hired.runs.next()).resolve("done");
    await hired.runs.next();
    const before = [];
    for (let n = 0; n < 5; n++) before.push(await received(socket));
    const result = before.find(({ type }) => type === "job_result");
    socket.raw.terminate();
    clock.advance((await hired.downs.next()).retryInMs);
    const again = await admit(peer, hired);

    expect(again.registered.running).toEqual([held, other]);
    expect(await received(again.socket)).toEqual(result);
    expect(await received(again.socket)).toEqual({ type: "job_started", ...other });
    again.socket.send(resultAck("duplicate"));
    await untilHeld(hired.worker, 1);
  });

  test("from a time without a connection is sent on the next one", async ({
    peer,
    clock,
    hire,
  }) => {
    const hired = hire();
    const { socket } = await admit(peer, hired);
    socket.send(assign());
    const { resolve, context } = await hired.runs.next();
    socket.raw.terminate();
    const { retryInMs } = await hired.downs.next();
    context.progress("lost");
    resolve("done");
    await nextTick();
    clock.advance(retryInMs);
    const again = await admit(peer, hired);

    expect(await received(again.socket)).toMatchObject({ type: "job_result", body: "done" });
  });

  test("is sent again on the same connection until it is acknowledged", async ({
    peer,
    clock,
    hire,
  }) => {
    const hired = hire();
    const { socket } = await admit(peer, hired);
    socket.send(assign());
    (await hired.runs.next()).resolve("done");
    await received(socket);
    await received(socket);
    const result = await received(socket);
    clock.advance(6_000);
    expect(await received(socket)).toEqual(result);
    socket.send(resultAck("stale"));
    await untilHeld(hired.worker, 0);
    clock.advance(120_000);
    await nextTick();

    expect(unsaid(socket)).toEqual([]);
  });

  test("is dropped when the server refuses it permanently", async ({ peer, hire }) => {
    const hired = hire();
    const { socket } = await admit(peer, hired);
    socket.send(assign());
    (await hired.runs.next()).resolve("done");
    await received(socket);
    await received(socket);
    await received(socket);
    const error = { type: "error", code: "NOT_FOUND", message: "no such job", job_id: JOB };
    socket.send({ ...error, retryable: true });
    socket.send({ ...error, retryable: false });

    expect(await hired.problems.next()).toMatchObject({ code: "NOT_FOUND" });
    expect(hired.worker.held).toBe(0);
  });

  test("does not fill the memory: the oldest is dropped and reported", async ({ peer, hire }) => {
    const hired = hire({ outboxMax: 1 });
    const { socket } = await admit(peer, hired);
    socket.send(assign(), assign({ ...other, request_id: "r-2" }));
    (await hired.runs.next()).resolve("one");
    (await hired.runs.next()).resolve("two");

    expect((await hired.problems.next()).message).toContain(JOB);
    expect(hired.worker.held).toBe(1);
  });
});

describe("a job that is cancelled", () => {
  test("gets an aborted signal, and sends nothing more", async ({ peer, hire }) => {
    const hired = hire();
    const { socket } = await admit(peer, hired);
    socket.send(assign());
    const { context, reject } = await hired.runs.next();
    const stopped = new Promise((resolve) => context.signal.addEventListener("abort", resolve));
    await received(socket);
    await received(socket);
    socket.send({ type: "job_cancel", ...held, reason: "the user went away" });
    await stopped;
    expect(context.signal.reason).toMatchObject({ code: "JOB_CANCELLED" });
    context.progress("too late");
    reject(context.signal.reason);
    socket.send(assign({ ...other, request_id: "r-2" }));

    expect(await received(socket)).toEqual({ type: "job_ack", ...other });
  });

  test("of an older attempt changes nothing", async ({ peer, hire }) => {
    const hired = hire();
    const { socket } = await admit(peer, hired);
    socket.send(assign({ attempt_id: 2 }));
    const { context, resolve } = await hired.runs.next();
    socket.send({ type: "job_cancel", ...held, reason: "late" });
    await received(socket);
    await received(socket);
    resolve("done");

    expect(await received(socket)).toMatchObject({ type: "job_result", attempt_id: 2 });
    expect(context.signal.aborted).toBe(false);
  });

  test("and does not stop keeps its slot; the next job waits, or goes to another node", async ({
    peer,
    clock,
    hire,
  }) => {
    const hired = hire({ capacity: 1 });
    const { socket } = await admit(peer, hired);
    socket.send(assign());
    const stubborn = await hired.runs.next();
    await received(socket);
    await received(socket);
    socket.send({ type: "job_cancel", ...held, reason: "too slow" });
    socket.send(assign({ ...other, request_id: "r-2" }));
    expect(await received(socket)).toEqual({ type: "job_ack", ...other });
    clock.advance(2_500);
    expect(await received(socket)).toMatchObject({
      type: "job_result",
      ...other,
      error: { code: "QUEUE_FULL", retryable: true },
    });
    socket.send(assign({ ...other, attempt_id: 2, request_id: "r-2" }));
    expect(await received(socket)).toMatchObject({ type: "job_ack", attempt_id: 2 });
    stubborn.resolve();

    expect(await received(socket)).toMatchObject({ type: "job_started", attempt_id: 2 });
  });

  test("by its own time limit, when no server can reach the worker", async ({
    peer,
    clock,
    hire,
  }) => {
    const hired = hire();
    const { socket } = await admit(peer, hired);
    socket.send(assign({ timeout_ms: 20_000 }));
    const { context } = await hired.runs.next();
    clock.advance(20_500);
    expect(context.signal.aborted).toBe(false);
    clock.advance(1_000);

    expect(context.signal.reason).toMatchObject({ code: "JOB_TIMEOUT" });
  });

  test("with all others, when another process takes the address", async ({ peer, hire }) => {
    const hired = hire();
    const { socket } = await admit(peer, hired);
    socket.send(assign());
    const { context } = await hired.runs.next();
    socket.raw.close(4409);
    await hired.downs.next();

    expect(context.signal.aborted).toBe(true);
    expect(hired.worker.held).toBe(0);
  });
});

describe("a worker that is closed", () => {
  test("reports that it drains, finishes its jobs, takes no new ones, and disconnects", async ({
    peer,
    hire,
  }) => {
    const hired = hire();
    const { socket } = await admit(peer, hired);
    socket.send(assign());
    const { resolve } = await hired.runs.next();
    await received(socket);
    await received(socket);
    const closed = hired.worker.close();
    expect(await socket.receive()).toMatchObject({ type: "node_heartbeat", draining: true });
    socket.send(assign({ ...other, request_id: "r-2" }));
    expect(await received(socket)).toMatchObject({
      type: "job_result",
      ...other,
      success: false,
      error: { code: "NODE_DRAINING", retryable: true },
    });
    socket.send(resultAck("applied", other));
    resolve("done");
    expect(await received(socket)).toMatchObject({ type: "job_result", ...held, body: "done" });
    socket.send(resultAck());

    await closed;
    expect(await socket.closed).toMatchObject({ code: 1000 });
    expect(hired.worker.state).toBe("closed");
  });

  test("gives back jobs that have not ended in time", async ({ peer, clock, hire }) => {
    const hired = hire();
    const { socket } = await admit(peer, hired);
    socket.send(assign());
    const { context, resolve } = await hired.runs.next();
    await received(socket);
    await received(socket);
    const closed = hired.worker.close({ withinMs: 10_000 });
    await socket.receive();
    clock.advance(10_000);

    expect(await received(socket)).toMatchObject({
      type: "job_result",
      error: { code: "NODE_DRAINING", retryable: true },
    });
    expect(context.signal.aborted).toBe(true);
    resolve("too late");
    await nextTick();
    expect(hired.worker.held).toBe(1);
    socket.send(resultAck());
    await closed;
    expect(unsaid(socket)).toEqual([]);
  });

  test("before it was connected never connects", async ({ hire }) => {
    const hired = hire({ url: "http://127.0.0.1:1" });
    await hired.worker.close();

    expect(hired.worker.state).toBe("closed");
  });

  test("by a signal, once", async ({ peer, hire }) => {
    const hired = hire();
    const { socket } = await admit(peer, hired);
    closeOnSignal(hired.worker, { signals: ["SIGUSR2"] });
    process.kill(process.pid, "SIGUSR2");

    expect(await socket.closed).toMatchObject({ code: 1000 });
    expect(process.listenerCount("SIGUSR2")).toBe(0);
  });
});

async function untilHeld(worker: Worker, count: number): Promise<void> {
  while (worker.held !== count) await nextTick();
}
