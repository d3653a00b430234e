import { describe, expect, test } from "vitest";
import { until } from "./until.ts";

describe("waiting for a condition", () => {
  test("until returns the first true value", async () => {
    const answers = [undefined, 0, "", "here"];
    expect(await until(() => answers.shift(), { everyMs: 1, what: "an answer" })).toBe("here");
  });

  test("until fails with what it waited for and the last error", async () => {
    const waiting = until(() => Promise.reject(new Error("port closed")), {
      deadlineMs: 20,
      everyMs: 1,
      what: "the store",
    });
    await expect(waiting).rejects.toThrow(
      "waited 20 ms in vain for the store; last error: Error: port closed",
    );
  });
});
