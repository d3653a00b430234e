import { expect, test } from "vitest";
import { createManualClock } from "../../testing/manual-clock.ts";
import { createTableRefresh } from "./table-refresh.ts";

const ticks = async () => {
  for (let tick = 0; tick < 5; tick++) await new Promise(setImmediate);
};

function scene(restMs: number) {
  const clock = createManualClock();
  let reads = 0;
  let notify = () => {};
  const refresh = createTableRefresh({
    ...{ clock, channel: "c", intervalMs: 60_000, restMs: () => restMs },
    db: {
      async listen(_channel: string, onNotify: () => void) {
        notify = onNotify;
      },
    } as never,
    read: async () => {
      reads += 1;
    },
    onReadError: () => {},
    onListenError: () => {},
  });
  return { clock, refresh, reads: () => reads, notify: () => notify() };
}

test("notifications during a rest are one read after it", async () => {
  const { clock, refresh, reads, notify } = scene(500);
  refresh.start();
  await ticks();
  for (let count = 0; count < 100; count++) {
    notify();
    await ticks();
  }
  expect(reads()).toBe(1);
  clock.advance(500);
  await ticks();
  expect(reads()).toBe(2);
  await refresh.stop();
});

test("a caller of refresh does not wait for a rest, and neither does a stop", async () => {
  const { refresh, reads } = scene(500);
  refresh.start();
  await ticks();
  await refresh.refresh();
  expect(reads()).toBe(2);
  await refresh.stop();
});
