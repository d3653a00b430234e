import { describe, expect, test } from "vitest";
import { startPlantedRun } from "./planted-run.ts";

describe("the plain count", () => {
  test("the count is the last line of a good run", async () => {
    const run = startPlantedRun("passes");
    expect(await run.exited).toEqual({ code: 0, signal: null });
    expect(lastLine(run.stdout())).toBe("1 passed, 0 failed");
  });

  test("skipped and unwritten tests are counted and fail the run", async () => {
    const run = startPlantedRun("skips");
    expect((await run.exited).code).toBe(1);
    expect(lastLine(run.stdout())).toBe("1 passed, 0 failed, 2 skipped");
    expect(run.stdout()).toContain("skipped tests fail the run");
  });

  test("one test can be run by name", async () => {
    const run = startPlantedRun("skips", { args: ["-t", "runs"] });
    expect((await run.exited).code).toBe(0);
    expect(lastLine(run.stdout())).toBe("1 passed, 0 failed, 2 skipped");
  });

  test("a suite that cannot begin counts as failed", async () => {
    const run = startPlantedRun("breaks");
    expect((await run.exited).code).toBe(1);
    expect(lastLine(run.stdout())).toBe("0 passed, 2 failed, 1 skipped");
  });
});

function lastLine(text: string): string | undefined {
  return text.trimEnd().split("\n").at(-1);
}
