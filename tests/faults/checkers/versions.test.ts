import { describe, expect, test } from "vitest";
import type { ProgramEvent } from "./programs.ts";
import { checkVersions } from "./versions.ts";

const starts = (name: string, ...versions: number[]): ProgramEvent[] =>
  versions.map((version, start) => ({ role: name.split("-")[0]!, name, start, version, of: 2 }));

describe("versions side by side", () => {
  test("a program that came back newer was upgraded, one that came back older downgraded", () => {
    const { reached } = checkVersions([
      ...starts("worker-0", 1, 0, 0),
      ...starts("worker-1", 0, 1),
    ]);
    expect(reached).toEqual({ upgrades: 1, downgrades: 1, worker_in_both: 2 });
  });

  test("the order of the starts decides, not the order of the record", () => {
    expect(checkVersions(starts("worker-0", 1, 0).reverse()).reached).toMatchObject({
      upgrades: 1,
      downgrades: 0,
    });
  });

  test("a role that ran in one version only has met nothing", () => {
    expect(checkVersions(starts("unit-0", 0, 0)).reached).toMatchObject({ unit_in_both: 0 });
  });
});
