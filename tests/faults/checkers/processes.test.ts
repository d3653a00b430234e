import type { RecordedEvent } from "@tenure/testing/history";
import { describe, expect, test } from "vitest";
import { checkProcesses, checkRunning, type DeployedRow, type Life, livesOf } from "./processes.ts";

const MS = 1e6;
const life = (
  id: string,
  node: string,
  generation: number,
  [start, last]: [number, number],
): Life => ({
  id,
  node,
  generation,
  pid: start,
  startNs: start * MS,
  lastNs: last * MS,
});
const row = (id: string, lostAfterMs = 0, type = "deployment"): DeployedRow => ({
  id,
  type,
  address: type === "daemon" ? "" : "A",
  generation: 3,
  lost_after_ms: lostAfterMs,
});
const rules = { strictFromMs: 1_000, overlapMaxMs: 50, passive: ["N"] };
const rows = [row("loose"), row("strict", 2_000), row("d", 0, "daemon")];
const calm = [
  life("strict", "a", 1, [0, 100]),
  life("strict", "b", 3, [110, 300]),
  life("loose", "a", 1, [0, 100]),
  life("loose", "b", 3, [70, 300]),
  life("d", "a", 1, [0, 100]),
  life("d", "a", 1, [120, 300]),
  life("d", "b", 1, [0, 300]),
];
const violationsOf = (lives: Life[], owners = [{ id: "loose", address: "A" }], all = rows) =>
  checkProcesses(lives, { rows: all, owners }, rules).violations.join("\n");

describe("I1, I3: processes", () => {
  test("processes that end before the next begins, or within the bound, pass", () => {
    expect(violationsOf(calm)).toBe("");
    expect(checkProcesses(calm, { rows, owners: [] }, rules).reached).toEqual({
      takeovers: 2,
      restarts: 0,
      daemon_restarts: 1,
    });
  });

  test.for<[string, Life[], RegExp]>([
    [
      "an overlap where none is allowed",
      [life("strict", "c", 5, [290, 400])],
      /ran on b .* and c .* for 10 ms, 0 are allowed/,
    ],
    [
      "an overlap beyond the bound",
      [life("loose", "c", 5, [200, 400])],
      /for 100 ms, 50 are allowed/,
    ],
    ["a twin on one node", [life("d", "b", 1, [200, 400])], /ran on b at once/],
    ["a twin of a deployment", [life("loose", "b", 3, [250, 260])], /ran on b at once/],
  ])("catch %s", ([, more, sentence]) => {
    expect(violationsOf([...calm, ...more])).toMatch(sentence);
  });

  test("catch an owner with the policy none, and a daemon with an owner", () => {
    expect(violationsOf(calm, [{ id: "loose", address: "N" }])).toMatch(/whose policy is none/);
    const owned = [...rows.slice(0, 2), { ...row("d", 0, "daemon"), address: "A" }];
    expect(violationsOf(calm, [], owned)).toMatch(/daemon d has an owner/);
  });

  test("agree at rest with the table, and daemons with the list of nodes", () => {
    const owned = [
      { ...row("loose"), owner: "b" },
      { ...row("d", 0, "daemon"), owner: "" },
    ];
    const alive = [
      life("loose", "b", 3, [0, 1]),
      life("d", "a", 1, [0, 1]),
      life("d", "b", 1, [0, 1]),
    ];
    const found = (lives: Life[]) => checkRunning(lives, owned, ["a", "b"]).join("\n");
    expect(found(alive)).toBe("");
    expect(found(alive.slice(1))).toMatch(/loose is owned by b and runs on no node/);
    expect(found([...alive, life("loose", "a", 1, [0, 1])])).toMatch(/runs on a, b/);
    expect(found([life("loose", "b", 1, [0, 1]), ...alive.slice(1)])).toMatch(
      /runs in term 1, its term is 3/,
    );
    expect(found(alive.slice(0, 2))).toMatch(/daemon d runs on a$/);
    expect(found([...alive, life("d", "b", 1, [0, 1])])).toMatch(/daemon d runs on a, b, b/);
  });

  test("lives are read from the lines that each process wrote", () => {
    const beat = (time: number): RecordedEvent => ({
      index: time,
      time,
      process: "child-7",
      type: "info",
      f: "alive",
      value: { id: "x", generation: 2, pid: 7, directory: "/run/a/work" },
    });
    expect(livesOf([beat(5), beat(1), beat(9)], (path) => path.split("/")[2]!)).toEqual([
      { id: "x", generation: 2, pid: 7, node: "a", startNs: 1, lastNs: 9 },
    ]);
  });
});
