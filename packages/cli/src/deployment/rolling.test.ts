import type { DeploymentState, DeploymentView } from "@tenure/protocol";
import { expect, test } from "vitest";
import { type RollItem, type RollStep, roll } from "./rolling.ts";

/** A fleet where a change takes a few looks to show, and never more than `limit` are down at once. */
function fleet(names: string[], after: (name: string) => DeploymentState = () => "running") {
  const looks = new Map<string, number>();
  let down = 0;
  let downMax = 0;
  const view = (name: string, state: DeploymentState, pid: number): DeploymentView => ({
    ...{
      id: name,
      name,
      package_name: "x",
      package_version: "1.0.0",
      command: "",
      args: [],
      env: {},
    },
    ...{ type: "deployment", address: "n", enabled: true, selector: {}, lost_after_ms: 0 },
    ...{
      generation: 1,
      revision: 1,
      moving_to: "",
      move_state: "",
      created_at: "",
      updated_at: "",
    },
    status: [
      {
        ...{
          deployment_id: name,
          address: "n",
          state,
          generation: 1,
          pid,
          restarts: 0,
          exit_code: null,
        },
        ...{ signal: null, last_error: null, spec_hash: null, started_at: null, updated_at: "" },
      },
    ],
  });
  const steps: RollStep[] = [];
  let nowMs = 0;
  return {
    steps,
    downMax: () => downMax,
    changed: () => [...looks.keys()],
    items: names.map(
      (name): RollItem => ({
        name,
        before: view(name, "running", 1),
        restarts: true,
        change: async () => {
          looks.set(name, 0);
          downMax = Math.max(downMax, ++down);
        },
      }),
    ),
    options: (maxUnavailable: number) => ({
      maxUnavailable,
      limitMs: 1_000,
      read: async (name: string) => {
        const seen = (looks.get(name) ?? 0) + 1;
        looks.set(name, seen);
        if (seen < 3) return view(name, "running", 1); // still the old process
        const state = after(name);
        if (state === "running") down--;
        return view(name, state, 2);
      },
      pause: async () => {
        nowMs += 100;
      },
      nowMs: () => nowMs,
      onStep: (step: RollStep) => void steps.push(step),
    }),
  };
}

test.each([1, 2, 5])("never more than %i are without a process at once", async (maxUnavailable) => {
  const set = fleet(["a", "b", "c", "d", "e", "f"]);
  expect(await roll(set.items, set.options(maxUnavailable))).toBe(true);
  expect(set.downMax()).toBe(maxUnavailable);
  expect(set.steps.filter(({ outcome }) => outcome === "running")).toHaveLength(6);
});

test("the first that fails ends it, and the rest stays as it was", async () => {
  const set = fleet(["a", "b", "c", "d"], (name) => (name === "b" ? "failed" : "running"));
  expect(await roll(set.items, set.options(1))).toBe(false);
  expect(set.changed()).toEqual(["a", "b"]);
  expect(set.steps.at(-1)).toMatchObject({ name: "b", outcome: "failed" });
});

test("one that never runs again is a failure after its time", async () => {
  const set = fleet(["a", "b"], () => "starting");
  expect(await roll(set.items, set.options(1))).toBe(false);
  expect(set.steps.at(-1)).toMatchObject({ name: "a", reason: "did not run again in time" });
});

test("a daemon has rolled when it runs on the nodes that are there; one that left is not waited for", async () => {
  const { items, options: optionsFor, steps } = fleet(["dmn"]);
  const options = optionsFor(1);
  const read = async (name: string) => {
    const view = await options.read(name);
    const gone = { ...view.status[0]!, address: "gone", state: "stopped" as const, past: true };
    return { ...view, type: "daemon", status: [...view.status, gone] };
  };
  expect(await roll(items, { ...options, read })).toBe(true);
  expect(steps.at(-1)).toEqual({ name: "dmn", outcome: "running" });
});
