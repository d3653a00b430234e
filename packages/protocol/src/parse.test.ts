import { describe, expect, test } from "vitest";
import * as z from "zod";
import { TenureError } from "./errors.ts";
import { parseMessage, parseRequest } from "./parse.ts";
import { SessionToServer } from "./session-messages.ts";

function refusal(call: () => unknown): TenureError {
  try {
    call();
  } catch (error) {
    if (error instanceof TenureError) return error;
    throw error;
  }
  throw new Error("nothing was refused");
}

describe("a frame", () => {
  test("that fits is given back without its unknown fields", () => {
    const frame = '{"type":"turn_finalize","reason":"manual","mood":"good"}';
    expect(parseMessage(SessionToServer, frame)).toEqual({
      type: "turn_finalize",
      reason: "manual",
    });
  });

  test.each([
    "",
    "{",
    "undefined",
    '{"type":"turn_finalize"',
    "\u0000",
  ])("%j is no JSON", (frame) => {
    expect(refusal(() => parseMessage(SessionToServer, frame))).toMatchObject({
      code: "INVALID_MESSAGE",
      message: "invalid message: not JSON",
    });
  });

  test.each([
    "null",
    "7",
    '"session_close"',
    "[]",
    "{}",
    '{"type":"node_register"}',
    '{"type":"__proto__"}',
  ])("%s is no message", (frame) => {
    expect(refusal(() => parseMessage(SessionToServer, frame)).code).toBe("INVALID_MESSAGE");
  });

  test("with a wrong field gets its path", () => {
    const error = refusal(() =>
      parseMessage(SessionToServer, '{"type":"turn_finalize","reason":"bored"}'),
    );
    expect(error.details).toMatchObject({ issues: [{ path: "reason" }] });
    expect(error.message).toContain("reason: ");
  });
});

test("a request with many mistakes gets a short answer", () => {
  const body = { names: new Array(5_000).fill(1) };
  const error = refusal(() => parseRequest(z.object({ names: z.array(z.string()) }), body));

  expect(error).toMatchObject({ code: "INVALID_REQUEST", status: 400 });
  expect((error.details as { issues: unknown[] }).issues).toHaveLength(8);
  expect(error.message.length).toBeLessThan(1_000);
});

test("a hostile field name does not fill the answer", () => {
  const body = { ["x".repeat(100_000)]: 1 };
  const error = refusal(() => parseRequest(z.record(z.string(), z.string()), body));
  expect(error.message.length).toBeLessThan(1_000);
});
