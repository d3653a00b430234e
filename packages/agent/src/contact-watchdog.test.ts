import { expect, test } from "vitest";
import { createManualClock } from "../../sdk/testing/manual-clock.ts";
import { createContactWatchdog } from "./contact-watchdog.ts";

function watchdogFor(selfStopMs: number, laterMs = 0) {
  const silences: number[] = [];
  const clock = createManualClock();
  const happened: string[] = [];
  const watchdog = createContactWatchdog({
    clock,
    selfStopMs,
    suspend: (reason, silentMs) => {
      happened.push(`suspend: ${reason}`);
      silences.push(silentMs);
    },
    nextStopMs: (silentMs) => (silentMs < laterMs ? laterMs : undefined),
    refresh: () => happened.push("refresh"),
    resume: () => happened.push("resume"),
  });
  watchdog.start();
  return { clock, watchdog, happened, silences };
}
const SILENT = "suspend: no contact for 1000 ms";

test("a node without contact stops its deployments once", () => {
  const { clock, watchdog, happened } = watchdogFor(1_000);
  clock.advance(999);
  expect(happened).toEqual([]);
  clock.advance(1);
  clock.advance(10_000);
  expect(happened).toEqual([SILENT]);
  expect(watchdog.isSuspended).toBe(true);
});

test("a deployment that may run longer is stopped later, by the same silence", () => {
  const { clock, watchdog, silences } = watchdogFor(1_000, 5_000);
  clock.advance(4_999);
  expect(silences).toEqual([1_000]);
  clock.advance(1);
  expect(silences).toEqual([1_000, 5_000]);
  watchdog.contact(clock.monotonicMs());
  clock.advance(999);
  expect(silences).toHaveLength(2);
});

test("silence counts from the send time of the heartbeat, not from its acknowledgement", () => {
  const { clock, watchdog, happened } = watchdogFor(1_000);
  const sentMs = clock.monotonicMs();
  clock.advance(900);
  watchdog.contact(sentMs);
  clock.advance(100);
  expect(happened).toEqual([SILENT]);
});

test("a node resumes only after a list read since the contact", () => {
  const { clock, watchdog, happened } = watchdogFor(1_000);
  clock.advance(1_000);
  watchdog.refreshed();
  watchdog.contact(clock.monotonicMs());
  expect(happened).toEqual([SILENT, "refresh"]);
  watchdog.refreshed();
  expect(happened).toEqual([SILENT, "refresh", "resume"]);
  expect(watchdog.isSuspended).toBe(false);
});

test("an acknowledgement that took longer than the limit is no contact", () => {
  const { clock, watchdog, happened } = watchdogFor(1_000);
  const sentMs = clock.monotonicMs();
  clock.advance(2_000);
  watchdog.contact(sentMs);
  expect(happened).toEqual([SILENT]);
});

test("a list that was requested before a second silence resumes nothing", () => {
  const { clock, watchdog, happened } = watchdogFor(1_000);
  clock.advance(1_000);
  watchdog.contact(clock.monotonicMs());
  clock.advance(1_000);
  watchdog.refreshed();
  expect(happened).toEqual([SILENT, "refresh", SILENT]);
});

test("a node that was replaced stops at once", () => {
  const { watchdog, happened } = watchdogFor(1_000);
  watchdog.replaced("another process has the address");
  expect(happened).toEqual(["suspend: another process has the address"]);
});

test("a stopped watchdog ignores late acknowledgements and lists", () => {
  const { clock, watchdog, happened } = watchdogFor(1_000);
  clock.advance(1_000);
  watchdog.contact(clock.monotonicMs());
  watchdog.stop();
  watchdog.contact(clock.monotonicMs());
  watchdog.refreshed();
  expect(clock.timers).toBe(0);
  expect(happened).toEqual([SILENT, "refresh"]);
});
