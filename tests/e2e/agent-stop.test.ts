import { auditAddresses, runningStatuses, SLEEPER } from "@tenure/testing/fleet/deployments";
import { identify, isAlive } from "@tenure/testing/processes/proc";
import { until } from "@tenure/testing/until";
import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";
import { DEADLINE_MS, startUnitScene, type UnitScene } from "./node-units.ts";

vi.setConfig({ testTimeout: 240_000 });

let scene: UnitScene;
beforeAll(async () => {
  scene = await startUnitScene();
});
afterEach(() => scene.clear());
afterAll(() => scene?.stop());

/** Ends only when it is killed. */
const STUBBORN = `trap '' TERM; while :; do sleep 1; done`;
/** The stop lasts longer than a heartbeat, whose acknowledgement once kept the agent alive. */
const STOP_GRACE = { NODE_UNIT_STOP_GRACE_MS: "6000" };

test("SIGTERM: each deployment moves as its child ends, and the agent ends with 0 after the slowest", async () => {
  const leaving = await scene.start("leaving", STOP_GRACE);
  const [quick, safe, stubborn] = await Promise.all([
    scene.create({ name: "quick", command: SLEEPER }),
    scene.create({ name: "safe", command: SLEEPER, lost_after_ms: 60_000 }),
    scene.create({ name: "stubborn", command: STUBBORN }),
  ]);
  const before = await scene.untilAllRun([leaving]);
  const slowest = runningStatuses(before.find(({ id }) => id === stubborn!.id)!)[0]!;
  const child = identify(slowest.pid!)!;
  const staying = await scene.start("staying");
  await scene.untilMembers([staying]);
  const left = leaving.stop(DEADLINE_MS);
  const moved = async () => {
    const view = await scene.read(quick!.id);
    return view.address === staying.address && runningStatuses(view).length > 0;
  };
  await until(moved, { deadlineMs: DEADLINE_MS, what: "the quick one to run elsewhere" });
  expect(isAlive(child)).toBe(true);
  expect(await left).toEqual({ code: 0, signal: null });
  // Its owner may be back within the minute that it asks for, so nobody takes it before.
  expect((await scene.read(safe!.id)).address).toBe(leaving.address);
});

test("SIGTERM of a node of policy none: it writes no address", async () => {
  const none = await scene.start("n", { ...STOP_GRACE, NODE_UNIT_CLAIM_POLICY: "none" });
  const [own] = await scene.createSleepers(1);
  await scene.db.query(
    "update deployment set address = $2, generation = generation + 1 where id = $1",
    [own!.id, none.address],
  );
  await scene.untilAllRun([none]);
  const writes = await auditAddresses(scene.db);
  expect(await none.stop(DEADLINE_MS)).toEqual({ code: 0, signal: null });
  expect(await writes()).toEqual([]);
});

test("an agent that gets SIGTERM right after it joined ends with 0", async () => {
  const ends = Array.from({ length: 4 }, async (_, n) => {
    const unit = await scene.start(`young-${n}`);
    const askedMs = performance.now();
    return { ...(await unit.stop(DEADLINE_MS)), isSoon: performance.now() - askedMs < 10_000 };
  });
  expect(await Promise.all(ends)).toEqual(
    Array.from({ length: 4 }, () => ({ code: 0, signal: null, isSoon: true })),
  );
});
