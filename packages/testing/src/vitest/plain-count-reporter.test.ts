import { describe, expect, test } from "vitest";
import { startPlantedRun } from "./planted-run.ts";

describe("the plain count", () => {
  test("is the last line of a good run", async () => {
    const run = startPlantedRun("passes");
    expect(await run.exited).toEqual({ code: 0, signal: null });
    expect(lastLine(run.stdout())).toBe("1 passed, 0 failed");
  });

  test("counts skipped and unwritten tests, and fails the run", async () => {
    const run = startPlantedRun("skips");
    expect((await run.exited).code).toBe(1);
    expect(lastLine(run.stdout())).toBe("1 passed, 0 failed, 2 skipped");
    expect(run.stdout()).toContain("skipped tests fail the run");
  });

  test("lets somebody run one test by name", async () => {
    const run = startPlantedRun("skips", { args: ["-t", "runs"] });
    expect((await run.exited).code).toBe(0);
    expect(lastLine(run.stdout())).toBe("1 passed, 0 failed, 2 skipped");
  });

  test("counts a suite that cannot begin as failed", async () => {
    const run = startPlantedRun("breaks");
    expect((await run.exited).code).toBe(1);
    expect(lastLine(run.stdout())).toBe("0 passed, 2 failed, 1 skipped");
  });
});

function lastLine(text: string): string | undefined {
  return text.trimEnd().split("\n").at(-1);
}
