import { expect, test } from "vitest";
import { createManualClock } from "../../sdk/testing/manual-clock.ts";
import { createContactWatch } from "./contact-watchdog.ts";

function watchFor(selfStopMs: number, laterMs = 0) {
  const silences: number[] = [];
  const clock = createManualClock();
  const happened: string[] = [];
  const watch = createContactWatch({
    clock,
    selfStopMs,
    suspend: (reason, silentMs) => {
      happened.push(`suspend: ${reason}`);
      silences.push(silentMs);
    },
    nextStopMs: (silentMs) => (silentMs < laterMs ? laterMs : undefined),
    askForList: () => happened.push("list"),
    resume: () => happened.push("resume"),
  });
  watch.start();
  return { clock, watch, happened, silences };
}
const SILENT = "suspend: no contact for 1000 ms";

test("a node out of contact stops its deployments, once", () => {
  const { clock, watch, happened } = watchFor(1_000);
  clock.advance(999);
  expect(happened).toEqual([]);
  clock.advance(1);
  clock.advance(10_000);
  expect(happened).toEqual([SILENT]);
  expect(watch.isSuspended).toBe(true);
});

test("what may go on longer is stopped later, by the same silence", () => {
  const { clock, watch, silences } = watchFor(1_000, 5_000);
  clock.advance(4_999);
  expect(silences).toEqual([1_000]);
  clock.advance(1);
  expect(silences).toEqual([1_000, 5_000]);
  watch.contact(clock.monotonicMs());
  clock.advance(999);
  expect(silences).toHaveLength(2);
});

test("silence counts from when the heartbeat was sent, not from when its answer came", () => {
  const { clock, watch, happened } = watchFor(1_000);
  const sentMs = clock.monotonicMs();
  clock.advance(900);
  watch.contact(sentMs);
  clock.advance(100);
  expect(happened).toEqual([SILENT]);
});

test("contact is not enough to go on: a list must have been read since", () => {
  const { clock, watch, happened } = watchFor(1_000);
  clock.advance(1_000);
  watch.refreshed();
  watch.contact(clock.monotonicMs());
  expect(happened).toEqual([SILENT, "list"]);
  watch.refreshed();
  expect(happened).toEqual([SILENT, "list", "resume"]);
  expect(watch.isSuspended).toBe(false);
});

test("an acknowledgement that took longer than the limit is no contact", () => {
  const { clock, watch, happened } = watchFor(1_000);
  const sentMs = clock.monotonicMs();
  clock.advance(2_000);
  watch.contact(sentMs);
  expect(happened).toEqual([SILENT]);
});

test("silence again before the list came: the next list alone resumes nothing", () => {
  const { clock, watch, happened } = watchFor(1_000);
  clock.advance(1_000);
  watch.contact(clock.monotonicMs());
  clock.advance(1_000);
  watch.refreshed();
  expect(happened).toEqual([SILENT, "list", SILENT]);
});

test("a node that was replaced stops at once", () => {
  const { watch, happened } = watchFor(1_000);
  watch.replaced("another process has the address");
  expect(happened).toEqual(["suspend: another process has the address"]);
});

test("after stop neither a late acknowledgement nor a late list does anything", () => {
  const { clock, watch, happened } = watchFor(1_000);
  clock.advance(1_000);
  watch.contact(clock.monotonicMs());
  watch.stop();
  watch.contact(clock.monotonicMs());
  watch.refreshed();
  expect(clock.timers).toBe(0);
  expect(happened).toEqual([SILENT, "list"]);
});
