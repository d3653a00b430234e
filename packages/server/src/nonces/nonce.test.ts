import { describe, expect, test } from "vitest";
import { judgeMark, NONCE_EVENTS, nextStatus } from "./nonce.ts";

describe("the states of a number", () => {
  test("I9: a consumed number takes no event at all", () => {
    expect(NONCE_EVENTS.map((event) => nextStatus("CONSUMED", event))).toEqual(
      NONCE_EVENTS.map(() => null),
    );
  });

  test("only a released number is handed out", () => {
    const from = (["HELD", "CONSUMED", "RELEASED", "QUARANTINED"] as const).filter((status) =>
      nextStatus(status, "allocate"),
    );
    expect(from).toEqual(["RELEASED"]);
  });

  test("an operator settles a number only when its hold has run out", () => {
    expect(nextStatus("HELD", "resolve_released")).toBeNull();
    expect(nextStatus("QUARANTINED", "resolve_released")).toBe("RELEASED");
  });
});

describe("a mark is judged by what the number is after it", () => {
  const consumed = { status: "CONSUMED" as const, holdId: "h", txHash: "0x1" };
  const use = { event: "use" as const, holdId: "h", txHash: "0x1" };
  test("the same mark again is a success", () => expect(judgeMark(use, consumed)).toBe("done"));
  test("another hash is refused", () =>
    expect(judgeMark({ ...use, txHash: "0x2" }, consumed)).toBe("refused"));
  test("another hold is told so first", () =>
    expect(judgeMark({ ...use, holdId: "x", txHash: "0x2" }, consumed)).toBe("other_hold"));
  test("recycling what was consumed is refused", () =>
    expect(judgeMark({ event: "recycle", holdId: "h" }, consumed)).toBe("refused"));
  test("a number that was never issued is absent", () =>
    expect(judgeMark(use, undefined)).toBe("absent"));
  test("an operator needs no hold", () =>
    expect(judgeMark({ event: "resolve_consumed" }, consumed)).toBe("done"));
});
