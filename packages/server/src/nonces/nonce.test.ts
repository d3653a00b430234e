import { describe, expect, test } from "vitest";
import { judgeMark, NONCE_EVENTS, nextStatus } from "./nonce.ts";

describe("the states of a nonce", () => {
  test("I9: a consumed nonce refuses every event", () => {
    expect(NONCE_EVENTS.map((event) => nextStatus("CONSUMED", event))).toEqual(
      NONCE_EVENTS.map(() => null),
    );
  });

  test("only a released nonce is allocated again", () => {
    const from = (["HELD", "CONSUMED", "RELEASED", "QUARANTINED"] as const).filter((status) =>
      nextStatus(status, "allocate"),
    );
    expect(from).toEqual(["RELEASED"]);
  });

  test("an operator resolves a nonce only when its hold has expired", () => {
    expect(nextStatus("HELD", "resolve_released")).toBeNull();
    expect(nextStatus("QUARANTINED", "resolve_released")).toBe("RELEASED");
  });
});

describe("the outcome of a mark", () => {
  const consumed = { status: "CONSUMED" as const, holdId: "h", txHash: "0x1" };
  const use = { event: "use" as const, holdId: "h", txHash: "0x1" };
  test("a repeated mark succeeds", () => expect(judgeMark(use, consumed)).toBe("done"));
  test("a use with another hash is refused", () =>
    expect(judgeMark({ ...use, txHash: "0x2" }, consumed)).toBe("refused"));
  test("a mark of another hold is refused as such first", () =>
    expect(judgeMark({ ...use, holdId: "x", txHash: "0x2" }, consumed)).toBe("other_hold"));
  test("recycling a consumed nonce is refused", () =>
    expect(judgeMark({ event: "recycle", holdId: "h" }, consumed)).toBe("refused"));
  test("a nonce that was never allocated is absent", () =>
    expect(judgeMark(use, undefined)).toBe("absent"));
  test("a mark of an operator needs no hold", () =>
    expect(judgeMark({ event: "resolve_consumed" }, consumed)).toBe("done"));
});
