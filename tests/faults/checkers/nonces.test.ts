import { describe, expect, test } from "vitest";
import { type Allocate, checkNonces, type Mark, type NonceStores } from "./nonces.ts";

/** What a caller was told: request, number and hold, from when to when. */
function told(
  requestId: string,
  nonce: number,
  holdId: string,
  [startNs, endNs]: [number, number],
): Allocate {
  return {
    process: requestId,
    f: "allocate",
    asked: { signer: "s", request_id: requestId, count: 1 },
    type: "ok",
    answered: [{ nonce, hold_id: holdId, fencing_token: 1 }],
    startNs,
    endNs,
  };
}
function marked(as: "used" | "recyclable", nonce: number, holdId: string, startNs: number): Mark {
  const asked = { signer: "s", nonce, hold_id: holdId, as, tx_hash: `0x${holdId}` };
  return {
    process: holdId,
    f: "mark",
    asked,
    type: "ok",
    answered: {},
    startNs,
    endNs: startNs + 5,
  };
}
const row = (nonce: number, holdId: string, status = "HELD", txHash = `0x${holdId}`) => ({
  signer: "s",
  nonce,
  status,
  hold_id: holdId,
  tx_hash: status === "CONSUMED" ? txHash : null,
});
const answer = (requestId: string, nonce: number, holdId: string) => ({
  signer: "s",
  request_id: requestId,
  n: 0,
  nonce,
  hold_id: holdId,
});

const stores: NonceStores = {
  allocations: [row(0, "h1", "CONSUMED"), row(1, "h3")],
  requests: [answer("r1", 0, "h1"), answer("r2", 1, "h2"), answer("r3", 1, "h3")],
  cursors: [{ signer: "s", next_nonce: 2 }],
};
const r1 = told("r1", 0, "h1", [0, 10]);
const r2 = told("r2", 1, "h2", [5, 15]);
const r3 = told("r3", 1, "h3", [30, 40]);
const used = marked("used", 0, "h1", 12);
const recycled = marked("recyclable", 1, "h2", 20);

const violationsOf = (allocates: Allocate[], marks: Mark[], changed: Partial<NonceStores> = {}) =>
  checkNonces(allocates, marks, { ...stores, ...changed }).violations.join("\n");

describe("I9: the numbers of a signer", () => {
  test("nonces that are used once, and reissued only after they were returned, pass", () => {
    expect(violationsOf([r1, r2, r3], [used, recycled])).toBe("");
  });

  test("may be given on while it is unknown whether they were given back", () => {
    const unknown: Mark = { ...recycled, type: "info", endNs: Infinity };
    expect(violationsOf([r1, r2, r3], [used, unknown])).toBe("");
  });

  test("count what was repeated, reused and refused", () => {
    const repeat = told("r1", 0, "h1", [50, 60]);
    const refused: Mark = { ...marked("used", 1, "h2", 60), type: "fail" };
    const { reached, checked } = checkNonces(
      [r1, r2, r3, repeat],
      [used, recycled, refused],
      stores,
    );
    expect(checked).toBe(7);
    expect(reached).toMatchObject({
      repeated_requests: 1,
      reused_numbers: 1,
      foreign_marks_refused: 1,
    });
  });

  const cases: [string, Allocate[], Mark[], Partial<NonceStores>, RegExp][] = [
    [
      "two live holds of one number",
      [r1, r2, r3],
      [used],
      {},
      /number 1 was held by r2 and r3 at once/,
    ],
    [
      "a number given on before it was given back",
      [r1, r2, r3],
      [used, marked("recyclable", 1, "h2", 45)],
      {},
      /held by r2 and r3 at once/,
    ],
    [
      "a used number given on",
      [r1, r2, r3],
      [used, recycled, marked("used", 1, "h2", 18)],
      {},
      /held by r2 and r3 at once/,
    ],
    [
      "two answers to one request",
      [r1, r2, r3, told("r1", 2, "h9", [50, 60])],
      [used, recycled],
      {},
      /s r1 was answered 0\/h1, then 2\/h9/,
    ],
    [
      "one hold for two requests",
      [r1, r2, r3, told("r4", 1, "h3", [50, 60])],
      [used, recycled],
      {},
      /hold h3 went to two requests/,
    ],
    [
      "an answer nobody recorded",
      [r1, r2, r3],
      [used, recycled],
      { requests: stores.requests.slice(1) },
      /the answer to r1, number 0, is not recorded/,
    ],
    [
      "a used number that is free again",
      [r1, r2, r3],
      [used, recycled],
      { allocations: [row(0, "h1", "RELEASED"), row(1, "h3")] },
      /number 0 was used by r1 and is RELEASED/,
    ],
    [
      "a use that was overwritten by another's",
      [r1, r2, r3],
      [used, recycled],
      { allocations: [row(0, "h1", "CONSUMED", "0xother"), row(1, "h3")] },
      /number 0 was used by r1 and is CONSUMED with 0xother/,
    ],
    [
      "a number used by somebody who does not hold it",
      [r1, r2, r3],
      [used, recycled],
      { allocations: [row(0, "h1", "CONSUMED"), row(1, "h3", "CONSUMED")] },
      /number 1 of r3 was used by somebody else/,
    ],
    [
      "a number taken from its holder",
      [r1, r2, r3],
      [used, recycled],
      { allocations: [row(0, "h1", "CONSUMED"), row(1, "h9")] },
      /number 1 of r3 belongs to another hold/,
    ],
    [
      "a number that is gone",
      [r1, r2, r3],
      [used, recycled],
      { allocations: [row(0, "h1", "CONSUMED")] },
      /number 1 is missing/,
    ],
    [
      "a hole",
      [r1],
      [used],
      {
        allocations: [row(0, "h1", "CONSUMED"), row(2, "h3")],
        cursors: [{ signer: "s", next_nonce: 3 }],
      },
      /number 1 is missing/,
    ],
    [
      "a number beyond the cursor",
      [r1],
      [used],
      { cursors: [{ signer: "s", next_nonce: 1 }] },
      /beyond the cursor/,
    ],
  ];
  test.for(cases)("catches %s", ([, allocates, marks, changed, sentence]) => {
    expect(violationsOf(allocates, marks, changed)).toMatch(sentence);
  });
});
