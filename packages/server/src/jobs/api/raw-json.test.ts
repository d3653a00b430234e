import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, test } from "vitest";
import { parseNodeMessage, parseSessionMessage } from "./raw-json.ts";

const KIB = 1_024;
const JOB_ID = "01a1ec70-a402-7624-a908-6c0a6debda84";

const submitFrame = (words: string, payload: string) =>
  `{"type":"job_submit","request_id":"r","pool":"p",${words}"payload":${payload}}`;

test("a small payload does not keep the large frame it came in", () => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  const payload = JSON.stringify({ keep: "only this" });
  const padding = `"unknown":"${"x".repeat(900 * KIB)}",`;
  const kept: unknown[] = [];
  collect();
  const beforeBytes = process.memoryUsage().heapUsed;
  for (let count = 0; count < 64; count++) {
    // As the socket gives it: one flat string.
    const message = parseSessionMessage(Buffer.from(submitFrame(padding, payload)).toString());
    expect(message).toMatchObject({ payload: { text: payload, isCompact: true } });
    kept.push(message);
  }
  collect();
  expect((process.memoryUsage().heapUsed - beforeBytes) / KIB).toBeLessThan(8 * KIB);
  expect(kept).toHaveLength(64);
});

test.each([
  ["a result without a body", "", undefined],
  ["a result that is null", ',"body":null', "null"],
  ["the last of two bodies", ',"body":1,"body":-0', "-0"],
])("%s", (_, words, text) => {
  const about = `"job_id":"${JOB_ID}","attempt_id":1,"success":true`;
  const message = parseNodeMessage(`{"type":"job_result",${about}${words}}`);
  expect(message.type === "job_result" && message.body?.text).toBe(text);
});
