import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { fromErrorBody, toErrorBody } from "./error-body.ts";
import { ERRORS, type ErrorCode, isErrorCode, isTenureError, TenureError } from "./errors.ts";
import { fromErrorMessage, toErrorMessage } from "./shared-messages.ts";

const held = () =>
  new TenureError("LEASE_HELD", { signer: "eip155:1:0xabc", owner_node: "a:boot-1" });

test("docs/errors.md lists every code with its status and retryable, and no other", () => {
  const page = readFileSync(new URL("../../../docs/errors.md", import.meta.url), "utf8");
  const headings = [...page.matchAll(/^### (.+)$/gm)].map((match) => match[1]);
  const entries = page.matchAll(
    /^### (\w+)\n\nStatus (\d+), (not )?retryable\.\n\n[^#]+?\n\nWhat to do: /gm,
  );
  const documented = Array.from(entries, ([, code, status, not]) => [
    code,
    { status: Number(status), retryable: !not },
  ]);
  const existing = Object.entries(ERRORS).map(([code, { status, retryable }]) => [
    code,
    { status, retryable },
  ]);
  expect(headings.sort()).toEqual(Object.keys(ERRORS).sort());
  expect(Object.fromEntries(documented)).toEqual(Object.fromEntries(existing));
});

test("an error has its status, and its details in the message", () => {
  expect(held()).toMatchObject({
    name: "TenureError",
    code: "LEASE_HELD",
    status: 409,
    retryable: true,
    message: "signer eip155:1:0xabc is held by a:boot-1",
  });
});

test("narrowing by code gives the details of that code", () => {
  const error: unknown = held();
  expect(isTenureError(error, "LEASE_HELD") && error.details.owner_node).toBe("a:boot-1");
  expect(isTenureError(error, "FENCED")).toBe(false);
  expect(isTenureError(new Error("LEASE_HELD"), "LEASE_HELD")).toBe(false);
});

test("a code is one of the table, not a name every object has", () => {
  expect(isErrorCode("FENCED")).toBe(true);
  expect(["fenced", "toString", "__proto__", "constructor"].some(isErrorCode)).toBe(false);
});

describe("over the wire", () => {
  test.each(Object.keys(ERRORS) as ErrorCode[])("%s comes back as it went", (code) => {
    const sent = new TenureError(code, { reason: "r", signer: "s", retry_after_ms: 5 } as never);
    const received = fromErrorBody(JSON.parse(JSON.stringify(toErrorBody(sent))), sent.status);

    expect(received).toBeInstanceOf(TenureError);
    const { message, details, status, retryable, wireCode } = sent;
    expect(received).toMatchObject({ code, message, details, status, retryable, wireCode });
  });

  test("the body has exactly the four fields of the contract", () => {
    expect(toErrorBody(held())).toEqual({
      error: {
        code: "LEASE_HELD",
        message: "signer eip155:1:0xabc is held by a:boot-1",
        retryable: true,
        details: { signer: "eip155:1:0xabc", owner_node: "a:boot-1" },
      },
    });
  });

  test("a code of a newer server stays visible, is obeyed, and is relayed unchanged", () => {
    const body = {
      error: { code: "MOON_PHASE", message: "wait", retryable: true, details: { days: 3 } },
    };
    const received = fromErrorBody(body, 425);

    expect(received).toMatchObject({
      code: "INTERNAL",
      wireCode: "MOON_PHASE",
      message: "wait",
      retryable: true,
      status: 425,
    });
    expect(toErrorBody(received)).toEqual(body);
  });

  test.each([
    undefined,
    null,
    "<html>502</html>",
    {},
    { error: "no" },
    { error: { code: 1 } },
  ])("%j is no error body, and still becomes an error", (body) => {
    const received = fromErrorBody(body, 502);
    expect(received).toMatchObject({ code: "INTERNAL", retryable: false });
    expect(received.message).toContain("502");
  });

  test("an unexpected error is hidden from the caller", () => {
    const body = toErrorBody(new Error("password=hunter2 in /etc/secret"));
    expect(body.error).toEqual({
      code: "INTERNAL",
      message: "internal error",
      retryable: false,
      details: {},
    });
  });

  test("as a message it carries the wait, and what it is about", () => {
    const limited = new TenureError("RATE_LIMITED", { retry_after_ms: 250 });
    const message = toErrorMessage(limited, { request_id: "r1" });

    expect(message).toEqual({
      type: "error",
      code: "RATE_LIMITED",
      message: "too many requests; wait 250 ms",
      retryable: true,
      retry_after_ms: 250,
      request_id: "r1",
    });
    expect(fromErrorMessage(message)).toMatchObject({
      code: "RATE_LIMITED",
      details: { retry_after_ms: 250, request_id: "r1" },
    });
    expect(toErrorMessage(held())).not.toHaveProperty("retry_after_ms");
  });
});
