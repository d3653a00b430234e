import { describe, expect, test } from "vitest";
import { DOORBELL_BYTES_MAX, readDoorbell, writeDoorbell } from "./doorbell.ts";
import { checkMessage } from "./message-policy.ts";

const JOB_ID = "018f4e1a-0000-7000-8000-000000000001";
const bell = { kind: "job.assigned", job_id: JOB_ID, attempt_id: 2, deadline_ms: 1_000 };

describe("a doorbell", () => {
  test("is read as it was written, including unknown fields", () => {
    const message = { ...bell, session_id: "s1", note: "short" };
    expect(readDoorbell(writeDoorbell(message))).toEqual({ v: 1, hops: 0, ...message });
  });

  test("has no room for a payload", () => {
    const payload = "x".repeat(DOORBELL_BYTES_MAX);
    expect(() => writeDoorbell({ ...bell, payload })).toThrow("payloads belong beside");
    expect(readDoorbell(JSON.stringify({ ...bell, payload }))).toBeUndefined();
  });

  test.for([
    ["no text at all", ""],
    ["no JSON", "{"],
    ["no object", "null"],
    ["a later version", JSON.stringify({ ...bell, v: 2 })],
    ["no job", JSON.stringify({ ...bell, job_id: undefined })],
    ["attempt 0", JSON.stringify({ ...bell, attempt_id: 0 })],
    ["no deadline", JSON.stringify({ ...bell, deadline_ms: undefined })],
    ["invalid UTF-8", JSON.stringify({ ...bell, note: Buffer.from([0xff]).toString() })],
  ] as const)("cannot be parsed from: %s", ([, text]) => {
    expect(readDoorbell(text)).toBeUndefined();
  });
});

describe("a message", () => {
  const limits = { nowMs: 1_000, deliveriesMax: 3 };
  const entry = { id: "1-0", text: writeDoorbell(bell), deliveries: 0 };

  test("is delivered up to its deadline and up to the number of deliveries", () => {
    expect(checkMessage(entry, limits)).toMatchObject({ outcome: "deliver", message: bell });
    expect(checkMessage({ ...entry, deliveries: 2 }, limits)).toMatchObject({ outcome: "deliver" });
  });

  test.for([
    ["unparsable", { text: "{" }, {}],
    ["deadline", {}, { nowMs: 1_001 }],
    ["deliveries", { deliveries: 3 }, {}],
  ] as const)("becomes a dead letter by %s", ([reason, of, at]) => {
    expect(checkMessage({ ...entry, ...of }, { ...limits, ...at })).toEqual({
      outcome: "bury",
      reason,
    });
  });
});
