import { setImmediate as nextTurn } from "node:timers/promises";
import { expect, test } from "vitest";
import { createManualClock } from "../../../testing/manual-clock.ts";
import { RESULT_WINDOW, ResultQueue } from "./result-queue.ts";

const RESULT_BYTES = 200_000;

/** A queue over a socket whose buffer the test empties. */
function start({ failures = 0, missing = [] as string[], bytes = RESULT_BYTES } = {}) {
  const clock = createManualClock();
  const sent: string[] = [];
  const absent: string[] = [];
  let unsentBytes = 0;
  let reads = 0;
  let readsAtOnce = 0;
  let drained: (() => void) | undefined;
  let left = failures;
  const queue = new ResultQueue<string>({
    link: {
      sendText(frame) {
        sent.push(frame.slice(0, frame.indexOf(" ")));
        unsentBytes += frame.length;
      },
      unsentBytes: () => unsentBytes,
      whenDrained(callback) {
        drained = callback;
      },
    },
    clock,
    async read(jobId) {
      reads += 1;
      readsAtOnce = Math.max(readsAtOnce, reads);
      await nextTurn();
      reads -= 1;
      if (left-- > 0) throw new Error("the store is away");
      return missing.includes(jobId) ? undefined : `${jobId} `.padEnd(bytes, "x");
    },
    onAbsent: (jobId) => absent.push(jobId),
  });
  return {
    clock,
    queue,
    sent,
    absent,
    readsAtOnce: () => readsAtOnce,
    unsentBytes: () => unsentBytes,
    wait(from: number, to: number) {
      for (let job = from; job < to; job++) {
        queue.put(`job-${job}`, `about ${job}`);
        queue.wait(`job-${job}`);
      }
    },
    async drain() {
      unsentBytes = 0;
      drained?.();
      drained = undefined;
      await idle();
    },
  };
}

async function idle(): Promise<void> {
  for (let turn = 0; turn < 50; turn++) await nextTurn();
}

test("results wait while the buffer is full, and go on when it is empty, in order", async () => {
  const line = start();
  line.wait(0, 30);
  await idle();
  const first = line.sent.length;
  expect(first).toBeGreaterThan(3);
  expect(line.unsentBytes()).toBeLessThan(RESULT_WINDOW.unsentBytesMax + RESULT_BYTES);
  while (line.sent.length < 30) await line.drain();
  expect(line.sent).toEqual(Array.from({ length: 30 }, (_, job) => `job-${job}`));
});

test("few large results, and many small ones, are read at once", async () => {
  const large = start();
  large.wait(0, 100);
  await idle();
  expect(large.readsAtOnce()).toBeLessThan(10);
  const small = start({ bytes: 100 });
  small.wait(0, 1_000);
  await idle();
  expect(small.sent).toHaveLength(1_000);
  expect(small.readsAtOnce()).toBe(RESULT_WINDOW.readsMax);
});

test("unacknowledged results count once the client has acknowledged one, and no longer when it stops", async () => {
  const line = start();
  line.wait(0, 60);
  for (let more = 0; more < 4; more++) {
    await idle();
    await line.drain();
  }
  // Never acknowledged: only the buffer counts.
  const before = line.sent.length;
  expect(before * RESULT_BYTES).toBeGreaterThan(RESULT_WINDOW.unackedBytesMax);
  line.queue.acked("job-0");
  await line.drain();
  expect(line.sent).toHaveLength(before);
  // The rest of what it has: there is room again.
  for (let job = 1; job < before; job++) line.queue.acked(`job-${job}`);
  await line.drain();
  await line.drain();
  await line.drain();
  const windowful = line.sent.length - before;
  expect(windowful).toBe(Math.ceil(RESULT_WINDOW.unackedBytesMax / RESULT_BYTES));
  // It acknowledged within the first of the two periods.
  for (const _ of [1, 2]) {
    line.clock.advance(RESULT_WINDOW.ackStallMs);
    await line.drain();
  }
  expect(line.sent.length).toBeGreaterThan(before + windowful);
});

test("a result is on its way until one that was sent later is acknowledged", async () => {
  const line = start({ bytes: 100 });
  line.wait(0, 3);
  await idle();
  // Nothing was ever acknowledged: asked for again, it is sent again.
  expect(line.queue.isOnItsWay("job-1")).toBe(false);
  line.queue.acked("job-0");
  expect(line.queue.isOnItsWay("job-1")).toBe(true);
  line.queue.acked("job-2");
  expect(line.queue.isOnItsWay("job-1")).toBe(false);
});

test("a read that fails is repeated; a result that is gone is reported", async () => {
  const line = start({ failures: 1, missing: ["job-1"], bytes: 100 });
  line.wait(0, 2);
  await idle();
  line.clock.advance(RESULT_WINDOW.retryMs);
  await idle();
  expect(line.sent).toEqual(["job-0"]);
  expect(line.absent).toEqual(["job-1"]);
  expect(line.queue.close()).toEqual([["job-0", "about 0"]]);
});
