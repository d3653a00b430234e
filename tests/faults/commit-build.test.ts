import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { repositoryRoot } from "@tenure/testing/repository";
import { scratchDirectory } from "@tenure/testing/scratch";
import { expect, test } from "vitest";
import { buildAt } from "./commit-build.ts";

test("a commit that is not in the history is refused in one sentence", () => {
  expect(() => buildAt("0123abc")).toThrow(
    /^commit 0123abc is not in (this clone, which is shallow: |the history)/,
  );
});

test("a shallow clone is named as the reason, with what to do", () => {
  const clone = join(scratchDirectory("clone"), "shallow");
  execFileSync("git", ["clone", "--quiet", "--depth", "1", `file://${repositoryRoot}`, clone]);
  expect(() => buildAt("HEAD~1", { repository: clone })).toThrow(
    "commit HEAD~1 is not in this clone, which is shallow: run git fetch --unshallow first",
  );
});
