import { Writable } from "node:stream";
import { expect, test } from "vitest";
import { createLog } from "./log.ts";

test("a line is JSON with time, level, event, ids and the sentence", () => {
  const { lines, destination } = collector();
  const log = createLog("info", destination);
  log.child({ instanceId: "i-1" }).warn({ event: "thing.lost", thingId: 7 }, "a thing is gone");
  expect(lines()).toEqual([
    {
      time: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/),
      level: "warn",
      event: "thing.lost",
      instanceId: "i-1",
      thingId: 7,
      msg: "a thing is gone",
    },
  ]);
});

test("an error keeps its message, stack and code", () => {
  const { lines, destination } = collector();
  const error = Object.assign(new Error("no route"), { code: "EHOSTUNREACH" });
  createLog("info", destination).error({ event: "call.failed", error }, "a call failed");
  expect(lines()[0]).toMatchObject({
    error: {
      message: "no route",
      code: "EHOSTUNREACH",
      stack: expect.stringContaining("log.test"),
    },
  });
});

test("what is below the level is not written", () => {
  const { lines, destination } = collector();
  const log = createLog("warn", destination);
  log.debug({ event: "thing.seen" }, "seen");
  log.info({ event: "thing.seen" }, "seen");
  log.warn({ event: "thing.seen" }, "seen");
  expect(lines()).toHaveLength(1);
});

function collector() {
  const written: string[] = [];
  const destination = new Writable({
    write(chunk, _encoding, done) {
      written.push(String(chunk));
      done();
    },
  });
  const lines = (): unknown[] =>
    written
      .join("")
      .split("\n")
      .filter((line) => line !== "")
      .map((line) => JSON.parse(line));
  return { destination, lines };
}
