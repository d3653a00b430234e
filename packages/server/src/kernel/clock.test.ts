import { expect, test } from "vitest";
import { systemClock } from "./clock.ts";

test("sleeps at least as long as asked, by the monotonic clock", async () => {
  const startedMs = systemClock.monotonicMs();
  await systemClock.sleep(20);
  // A timer counts whole milliseconds and may fire a fraction early.
  expect(systemClock.monotonicMs() - startedMs).toBeGreaterThan(18);
});

test("wakes at once, without an error, when told to stop", async () => {
  const stopping = new AbortController();
  const asleep = systemClock.sleep(3_600_000, stopping.signal);
  stopping.abort();
  await asleep;
});

test("does not fall asleep after it was told to stop", async () => {
  await systemClock.sleep(3_600_000, AbortSignal.abort());
});

test("leaves no listener behind on a signal that outlives many sleeps", async () => {
  const stopping = new AbortController();
  let listeners = 0;
  const { addEventListener, removeEventListener } = stopping.signal;
  stopping.signal.addEventListener = (...args: Parameters<typeof addEventListener>) => {
    listeners += 1;
    addEventListener.apply(stopping.signal, args);
  };
  stopping.signal.removeEventListener = (...args: Parameters<typeof removeEventListener>) => {
    listeners -= 1;
    removeEventListener.apply(stopping.signal, args);
  };
  for (let nap = 0; nap < 3; nap++) await systemClock.sleep(1, stopping.signal);
  expect(listeners).toBe(0);
});

test("wall time is the time of day", () => {
  expect(Math.abs(systemClock.wallMs() - Date.now())).toBeLessThan(1_000);
});

test("sleeps on when asked for longer than a timer can count", async () => {
  const stopping = new AbortController();
  let awake = false;
  const asleep = systemClock.sleep(2 ** 31, stopping.signal).then(() => {
    awake = true;
  });
  await systemClock.sleep(20);
  expect(awake).toBe(false);
  stopping.abort();
  await asleep;
});
