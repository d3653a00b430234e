import { describe, expect, test } from "vitest";
import { createManualClock } from "../../testing/manual-clock.ts";
import { every } from "./service.ts";

const nothingFails = (error: unknown) => {
  throw error;
};

describe("a loop", () => {
  test("runs a step at once and the next one an interval after the last ended", async () => {
    const clock = createManualClock();
    const { steps, step } = countedSteps();
    const loop = every(1_000, step, { clock, onError: nothingFails });
    loop.start();
    await settled();
    expect(steps()).toBe(1);
    clock.advance(999);
    await settled();
    expect(steps()).toBe(1);
    clock.advance(1);
    await settled();
    expect(steps()).toBe(2);
    await loop.stop();
  });

  test("never overlaps itself, however slow a step is", async () => {
    const clock = createManualClock();
    const gate = createGate();
    let running = 0;
    let runningMax = 0;
    let steps = 0;
    const step = async () => {
      steps += 1;
      runningMax = Math.max(runningMax, ++running);
      await gate.passed;
      running -= 1;
    };
    const loop = every(1_000, step, { clock, onError: nothingFails });
    loop.start();
    for (let interval = 0; interval < 5; interval++) {
      clock.advance(1_000);
      await settled();
    }
    expect(steps).toBe(1);
    gate.open();
    await settled();
    // The intervals that passed meanwhile are lost, not owed.
    clock.advance(1_000);
    await settled();
    expect({ steps, runningMax }).toEqual({ steps: 2, runningMax: 1 });
    await loop.stop();
  });

  test("reports a step that fails and goes on", async () => {
    const clock = createManualClock();
    const reported: unknown[] = [];
    let steps = 0;
    const step = async () => {
      steps += 1;
      throw new Error(`step ${steps}`);
    };
    const loop = every(1_000, step, { clock, onError: (error) => reported.push(error) });
    loop.start();
    await settled();
    clock.advance(1_000);
    await settled();
    await loop.stop();
    expect(reported).toEqual([new Error("step 1"), new Error("step 2")]);
  });

  test("asks for its interval anew before every pause", async () => {
    const clock = createManualClock();
    const pauses = [100, 5_000];
    const { steps, step } = countedSteps();
    const loop = every(() => pauses.shift() ?? 1, step, { clock, onError: nothingFails });
    loop.start();
    await settled();
    clock.advance(100);
    await settled();
    expect(steps()).toBe(2);
    clock.advance(4_999);
    await settled();
    expect(steps()).toBe(2);
    await loop.stop();
  });
});

describe("stopping a loop", () => {
  test("waits for the step under way, tells it to hurry, and no step follows", async () => {
    const clock = createManualClock();
    const gate = createGate();
    const events: string[] = [];
    const step = async (signal: AbortSignal) => {
      signal.addEventListener("abort", () => events.push("told to stop"));
      await gate.passed;
      events.push("step ended");
    };
    const loop = every(1_000, step, { clock, onError: nothingFails });
    loop.start();
    const stopped = loop.stop().then(() => events.push("stopped"));
    await settled();
    expect(events).toEqual(["told to stop"]);
    gate.open();
    await stopped;
    clock.advance(10_000);
    await settled();
    expect(events).toEqual(["told to stop", "step ended", "stopped"]);
  });

  test("ends the pause between steps at once", async () => {
    const loop = every(3_600_000, async () => {}, {
      clock: createManualClock(),
      onError: nothingFails,
    });
    loop.start();
    await settled();
    await loop.stop();
  });

  test("works twice, before the start, and keeps a later start from doing anything", async () => {
    const { steps, step } = countedSteps();
    const loop = every(1_000, step, { clock: createManualClock(), onError: nothingFails });
    await loop.stop();
    loop.start();
    await settled();
    await loop.stop();
    expect(steps()).toBe(0);
  });
});

test("a loop that is started twice is one loop", async () => {
  const { steps, step } = countedSteps();
  const loop = every(1_000, step, { clock: createManualClock(), onError: nothingFails });
  loop.start();
  loop.start();
  await settled();
  expect(steps()).toBe(1);
  await loop.stop();
});

function countedSteps() {
  let count = 0;
  return {
    steps: () => count,
    step: async () => {
      count += 1;
    },
  };
}

function createGate(): { passed: Promise<void>; open: () => void } {
  let open = () => {};
  const passed = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { passed, open };
}

/** Everything that only waits for promises has happened by then. */
const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
