import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { repositoryRoot } from "../support/repository.ts";
import { applyEdit } from "./build.ts";
import { PLANTS } from "./plants.ts";
import { WORKLOADS } from "./workloads.ts";

describe("the fault suite", () => {
  test("has a protection to take out for every planted bug", () => {
    expect(new Set(PLANTS.map(({ name }) => name)).size).toBe(PLANTS.length);
    for (const { edits, workloads, name } of PLANTS) {
      const known = WORKLOADS.map((workload) => workload.name);
      expect(known, name).toEqual(expect.arrayContaining(workloads));
      for (const edit of edits) {
        const text = readFileSync(join(repositoryRoot, "packages", edit.file), "utf8");
        expect(applyEdit(text, edit), name).not.toBe(text);
      }
    }
  });
});
