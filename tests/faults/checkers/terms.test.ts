import { describe, expect, test } from "vitest";
import {
  type Contact,
  checkAtRest,
  checkTerms,
  type Registration,
  type TermsHistory,
} from "./terms.ts";

const MS = 1e6;
const admitted = (bootId: string, epoch: number, [start, end]: [number, number]): Registration => ({
  address: "n",
  bootId,
  epoch,
  startNs: start * MS,
  endNs: end * MS,
});
const contact = (epoch: number, sent: number): Contact => ({
  address: "n",
  epoch,
  sentNs: sent * MS,
  heardNs: (sent + 5) * MS,
});
const calm: TermsHistory = {
  registrations: [
    admitted("a", 1, [0, 10]),
    admitted("a", 2, [50, 60]),
    admitted("b", 3, [1_200, 1_210]),
  ],
  contacts: [contact(1, 20), contact(2, 70), contact(3, 1_220)],
  departures: [],
  downs: [],
  presenceTtlMs: 1_000,
};
const violationsOf = (changed: Partial<TermsHistory>) =>
  checkTerms({ ...calm, ...changed }).violations.join("\n");

describe("the terms of connections", () => {
  test("terms in which each newer connection silences the older one pass", () => {
    expect(checkTerms(calm)).toEqual({
      checked: 6,
      violations: [],
      reached: { reconnects: 2, addresses_taken_over: 1 },
    });
  });

  test("let another process in at once when the first has left", () => {
    const registrations = [admitted("a", 1, [0, 10]), admitted("b", 2, [50, 60])];
    const departures = [{ address: "n", epoch: 1 }];
    expect(violationsOf({ registrations, contacts: [contact(1, 40)], departures })).toBe("");
  });

  test("let another process in when the first has seen its connection end", () => {
    const registrations = [admitted("a", 1, [0, 10]), admitted("b", 2, [50, 60])];
    const downs = [{ address: "n", bootId: "a", atNs: 45 * MS }];
    expect(violationsOf({ registrations, contacts: [contact(1, 40)], downs })).toBe("");
  });

  test.for<[string, Partial<TermsHistory>, RegExp]>([
    [
      "one epoch given twice",
      {
        registrations: [
          ...calm.registrations,
          { ...admitted("x", 3, [1_300, 1_310]), address: "m" },
        ],
      },
      /epoch 3 was given 2 times/,
    ],
    [
      "an epoch that falls",
      { registrations: [admitted("a", 2, [0, 10]), admitted("a", 1, [50, 60])], contacts: [] },
      /epoch 2 is higher than one that was given later/,
    ],
    [
      "an older connection that is served on",
      { contacts: [contact(1, 65)] },
      /epoch 1 was renewed after epoch 2/,
    ],
    [
      "a twin that is let in while the first still answers",
      {
        registrations: [admitted("a", 1, [0, 10]), admitted("b", 2, [500, 510])],
        contacts: [contact(1, 400)],
      },
      /another process was admitted 110 ms after a sign of life/,
    ],
  ])("catch %s", ([, changed, sentence]) => {
    expect(violationsOf(changed)).toMatch(sentence);
  });

  test("agree at rest: the node, its row and its owner key", () => {
    const last = new Map([["n", 3]]);
    const row = { address: "n", epoch: 3, online: true };
    expect(checkAtRest(last, [row], new Map([["n", 3]]))).toEqual([]);
    expect(checkAtRest(last, [{ ...row, online: false }], last)).toMatchObject(
      [/says offline/].map((r) => expect.stringMatching(r)),
    );
    expect(checkAtRest(last, [{ ...row, epoch: 2 }], last)).toHaveLength(1);
    expect(checkAtRest(last, [row], new Map([["n", 2]]))).toMatchObject([
      expect.stringMatching(/owner key says 2/),
    ]);
    expect(checkAtRest(last, [], new Map())).toHaveLength(2);
  });
});
