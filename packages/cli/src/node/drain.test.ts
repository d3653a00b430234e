import type { DeploymentState, DeploymentView } from "@tenure/protocol";
import { expect, test } from "vitest";
import { type DrainStep, followDrain } from "./drain.ts";

const status = (address: string, state: DeploymentState, second: number, generation = 1) => ({
  ...{ deployment_id: "d", address, state, generation, pid: 1, restarts: 0, exit_code: null },
  ...{ signal: null, last_error: null, spec_hash: null, started_at: null },
  updated_at: `2026-01-01T00:00:0${second}.000Z`,
});
const view = (name: string, changes: Partial<DeploymentView> = {}): DeploymentView => ({
  ...{ id: name, name, package_name: "x", package_version: "1.0.0", command: "", args: [] },
  ...{ env: {}, type: "deployment", address: "old", enabled: true, selector: {} },
  ...{ lost_after_ms: 0, generation: 1, revision: 1, moving_to: "", move_state: "" },
  ...{ created_at: "", updated_at: "", status: [] },
  ...changes,
});
const onNew = (name: string, ...statuses: DeploymentView["status"]) =>
  view(name, { address: "new", generation: 2, status: statuses });

/** A fleet that is in the next of these states at every look, and then stays in the last. */
function fleetOf(
  looks: (DeploymentView | undefined)[][],
  { before = [] as DeploymentView[], stepMs = 250 } = {},
) {
  const steps: DrainStep[] = [];
  let at = 0;
  const now = () => looks[Math.min(at, looks.length - 1)]!;
  const done = followDrain({
    address: "old",
    before,
    owned: async () => now().flatMap((one) => (one?.address === "old" ? [one] : [])),
    read: async (id) => now().find((one) => one?.id === id),
    why: async (id) => `no node can run ${id}`,
    pause: async () => void at++,
    nowMs: () => at * stepMs,
    onStep: (step) => steps.push(step),
  });
  return { done, steps };
}

test("each deployment that runs on another node is reported, with its downtime", async () => {
  const stopped = status("old", "stopped", 1);
  const { done } = fleetOf([
    [view("a"), view("b")],
    [onNew("a", stopped, status("new", "starting", 2, 2)), view("b")],
    [onNew("a", stopped, status("new", "running", 3, 2)), view("b")],
    [
      onNew("a", stopped, status("new", "running", 3, 2)),
      onNew("b", status("new", "running", 5, 2)),
    ],
  ]);
  expect(await done).toEqual([
    { kind: "moved", name: "a", to: "new", gapMs: 2_000 },
    { kind: "moved", name: "b", to: "new", gapMs: undefined },
  ]);
});

test("a deployment that moved before the first poll is reported", async () => {
  const { done } = fleetOf([[onNew("a", status("new", "running", 1, 2))]], { before: [view("a")] });
  expect(await done).toEqual([{ kind: "moved", name: "a", to: "new", gapMs: undefined }]);
});

test("one that is deleted or disabled meanwhile holds nothing up", async () => {
  const { done } = fleetOf([
    [view("a"), view("b")],
    [undefined, view("b", { address: "", enabled: false })],
  ]);
  expect(await done).toEqual([
    { kind: "gone", name: "a" },
    { kind: "gone", name: "b" },
  ]);
});

test("a drain that does not progress reports the reason", async () => {
  const waiting = Array.from({ length: 100 }, () => [view("a")]);
  const { done, steps } = fleetOf([...waiting, [onNew("a", status("new", "running", 1, 2))]]);
  await done;
  expect(steps[0]).toEqual({ kind: "stuck", name: "a", why: "no node can run a" });
  expect(steps.at(-1)?.kind).toBe("moved");
});
