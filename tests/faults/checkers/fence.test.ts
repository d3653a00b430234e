import { describe, expect, test } from "vitest";
import { checkFence, type FencedAnswer, type FencedAsk, type FencedRow } from "./fence.ts";
import type { Operation } from "./operations.ts";

type Write = Operation<FencedAsk, FencedAnswer>;

/** A write that took effect: who, under which term, at which number, from when to when. */
function done(
  owner: string,
  token: number,
  nonce: number,
  [startNs, endNs]: [number, number],
): Write {
  return {
    process: owner,
    f: "write",
    asked: { signer: "s", owner, token },
    type: "ok",
    answered: { outcome: "done", token, nonce },
    startNs,
    endNs,
  };
}
const rowsOf = (writes: Write[]): FencedRow[] =>
  writes.map(({ answered }) => ({ signer: "s", nonce: answered.nonce!, token: answered.token! }));
const violationsOf = (writes: Write[], rows = rowsOf(writes)) =>
  checkFence(writes, rows).violations;

const calm = [done("a", 1, 0, [0, 10]), done("a", 1, 1, [11, 20]), done("b", 2, 2, [15, 30])];

describe("I10: a fenced register", () => {
  test("a history in which terms rise with the numbers and numbers with time passes", () => {
    expect(violationsOf(calm)).toEqual([]);
  });

  test("may have concurrent writes in either order", () => {
    expect(violationsOf([done("a", 1, 1, [0, 50]), done("a", 1, 0, [10, 20])])).toEqual([]);
  });

  test("the checker counts takeovers, refused writes of former owners and unknown ends", () => {
    const refused = { ...done("a", 1, 0, [40, 50]), answered: { outcome: "fenced" } as const };
    const taken = done("b", 2, 2, [15, 30]);
    taken.answered.acquired = "taken_over";
    const unknown: Write = { ...done("a", 1, 9, [40, 50]), type: "info", endNs: Infinity };
    const { reached } = checkFence([...calm.slice(0, 2), taken, refused, unknown], rowsOf(calm));
    expect(reached).toEqual({ takeovers: 1, stale_writes_refused: 1, unknown_outcomes: 1 });
  });

  test.for<[string, Write[], FencedRow[] | undefined, RegExp]>([
    [
      "a former owner that writes after its successor",
      [...calm, done("a", 1, 3, [31, 40])],
      undefined,
      /term 1 wrote number 3 after term 2/,
    ],
    ["one number for two writes", [...calm, done("b", 2, 2, [31, 40])], undefined, /written twice/],
    [
      "two owners of one term",
      [...calm, done("c", 2, 3, [31, 40])],
      undefined,
      /two owners, b and c/,
    ],
    [
      "an order that contradicts time",
      [done("a", 1, 1, [0, 10]), done("a", 1, 0, [20, 30])],
      undefined,
      /number 1 had ended before 0, which is smaller, began/,
    ],
    [
      "a write under another term than it named",
      [{ ...done("a", 2, 0, [0, 1]), asked: { signer: "s", owner: "a", token: 1 } }],
      undefined,
      /of term 1 was done under 2/,
    ],
    [
      "an answered write that is not stored",
      calm,
      rowsOf(calm).slice(0, 2),
      /number 2 was answered under term 2 and is stored under none/,
    ],
    [
      "a stored write that nobody can have made",
      calm,
      [...rowsOf(calm), { signer: "s", nonce: 3, token: 2 }],
      /4 writes are stored, 3 were answered and 0 are unknown/,
    ],
    [
      "a hole in the numbers",
      [done("a", 1, 0, [0, 10]), done("a", 1, 2, [11, 20])],
      undefined,
      /number 1 is missing/,
    ],
    [
      "a stored write of a former owner that nobody was told of",
      [...calm, { ...done("a", 1, 3, [31, 40]), type: "info", endNs: Infinity }],
      [...rowsOf(calm), { signer: "s", nonce: 3, token: 1 }],
      /number 3 is stored under a term older than the last/,
    ],
  ])("catches %s", ([, writes, rows, sentence]) => {
    expect(violationsOf(writes, rows).join("\n")).toMatch(sentence);
  });
});
