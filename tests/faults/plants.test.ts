import { readFileSync } from "node:fs";
import { join } from "node:path";
import { repositoryRoot } from "@tenure/testing/repository";
import { expect, test } from "vitest";
import { applyEdit } from "./build.ts";
import { DIMENSIONS, main } from "./dimensions.ts";
import { PLANTS } from "./plants.ts";
import { SHORT_RUN_FAULTS } from "./short-run.ts";
import { WORKLOADS } from "./workloads.ts";

test("every planted bug has a protection to take out", () => {
  expect(new Set(PLANTS.map(({ name }) => name)).size).toBe(PLANTS.length);
  for (const { edits, workloads, name, dimension = main.name } of PLANTS) {
    const own = DIMENSIONS.find((each) => each.name === dimension)?.workloads ?? [];
    const known = own.map((workload) => workload.name);
    expect(known, name).toEqual(expect.arrayContaining(workloads));
    for (const edit of edits) {
      const text = readFileSync(join(repositoryRoot, "packages", edit.file), "utf8");
      expect(applyEdit(text, edit), name).not.toBe(text);
    }
  }
});

test("the short run has a fault for every hazard that needs one", () => {
  for (const { name, hazards } of WORKLOADS)
    for (const [hazard, faults] of Object.entries(hazards))
      if (faults.length > 0) expect(faults.some(isShort), `${name}: ${hazard}`).toBe(true);
});

const isShort = (name: string): boolean =>
  SHORT_RUN_FAULTS.some((fault) => fault.split(":")[0] === name.split(":")[0]);
