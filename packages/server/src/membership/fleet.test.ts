import { expect, test } from "vitest";
import { openTestHot } from "../../testing/hot-stores.ts";
import { createFleet } from "./fleet.ts";
import type { NodeUnitRow } from "./store/node-unit-store.ts";

const row = (address: string) =>
  ({
    ...{ address, name: address, epoch: 1, present: true, online: true, instance_id: "i" },
    ...{ joined_at: new Date(0), presence_expires_at: new Date(0), left_at: null },
  }) as NodeUnitRow;

test("a node that has not changed keeps its view, in the order of addresses", async () => {
  const { hot } = await openTestHot("memory");
  let rows = [row("b"), row("c"), row("a")];
  let reserved = 0;
  const fleet = createFleet({
    ...{ db: {} as never, hot, removeStaleAfterMs: 60_000, readsOthers: true },
    nodes: { connected: () => [] } as never,
    rows: () => rows,
    reservedOf: (nodeId) => (nodeId === "a" ? reserved : 0),
  });
  const before = fleet.views();
  expect(before.map(({ node_id }) => node_id)).toEqual(["a", "b", "c"]);
  expect(fleet.views().every((view, index) => view === before[index])).toBe(true);
  reserved = 1;
  rows = [rows[0]!, { ...rows[1]!, draining: true }, rows[2]!];
  const after = fleet.views();
  expect(after.map(({ node_id, draining, reserved }) => [node_id, draining, reserved])).toEqual([
    ["a", false, 1],
    ["b", false, 0],
    ["c", true, 0],
  ]);
  expect(after[1]).toBe(before[1]);
});

test("the pages have the ends of presence that Postgres has, which no look reads", async () => {
  const { hot } = await openTestHot("memory");
  const renewed = { ...row("a"), presence_expires_at: new Date(45_000) };
  let isDown = false;
  const db = {
    async query() {
      if (isDown) throw new Error("down");
      return { rows: [renewed] };
    },
  };
  const fleet = createFleet({
    ...{ db: db as never, hot, removeStaleAfterMs: 60_000, readsOthers: true },
    ...{ nodes: { connected: () => [] } as never, rows: () => [row("a")], reservedOf: () => 0 },
  });
  const page = async () => {
    const scope = { tenants: ["*"] };
    const [node] = await fleet.page({ scope: scope as never, online: true, after: "", limit: 9 });
    return node?.presence_expires_at;
  };
  expect(await page()).toBe(new Date(45_000).toISOString());
  isDown = true;
  expect(await page()).toBe(new Date(0).toISOString());
});
