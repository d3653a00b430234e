import { appendFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { createHistory, readHistory } from "./history.ts";
import { scratchDirectory } from "./scratch.ts";

describe("a history", () => {
  test("the recorder separates refusals, which did nothing, from unknown outcomes", async () => {
    const file = join(scratchDirectory("history"), "events.jsonl");
    const history = createHistory(file);
    const take = { process: 1, f: "take", value: "lease" };
    const isRefusal = (error: unknown) => String(error).includes("LEASE_HELD");
    const failWith = (message: string) =>
      history.run(take, () => Promise.reject(new Error(message)), isRefusal);

    await history.run(take, () => Promise.resolve({ token: 7 }));
    await expect(failWith("LEASE_HELD")).rejects.toThrow("LEASE_HELD");
    await expect(failWith("timeout")).rejects.toThrow("timeout");

    expect(readHistory(file).map(({ type, value }) => ({ type, value }))).toEqual([
      { type: "invoke", value: "lease" },
      { type: "ok", value: { token: 7 } },
      { type: "invoke", value: "lease" },
      { type: "fail", value: { value: "lease", error: "Error: LEASE_HELD" } },
      { type: "invoke", value: "lease" },
      { type: "info", value: { value: "lease", error: "Error: timeout" } },
    ]);
  });

  test("puts the events of several writers in order of time, without a line cut short", () => {
    const file = join(scratchDirectory("history"), "events.jsonl");
    const [one, two] = [createHistory(file), createHistory(file)];
    one.record({ process: 1, type: "invoke", f: "read", value: null });
    two.record({ process: 2, type: "invoke", f: "read", value: null });
    one.record({ process: 1, type: "ok", f: "read", value: 3 });
    appendFileSync(file, '{"index":9,"time":1,"proc');

    const events = readHistory(file);
    expect(events.map((event) => event.process)).toEqual([1, 2, 1]);
    const times = events.map((event) => event.time);
    expect(times).toEqual([...times].sort((a, b) => a - b));
  });
});
