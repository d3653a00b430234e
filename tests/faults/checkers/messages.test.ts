import { describe, expect, test } from "vitest";
import { checkMessages, type MessageStores, type Send } from "./messages.ts";

const sent = (id: string, type: Send["type"] = "ok", old = false): Send => ({
  process: "p",
  f: "send",
  asked: { to: "i", message_id: id, old },
  type,
  answered: {},
  startNs: 0,
  endNs: 1,
});
const stores: MessageStores = {
  effects: { m1: 2 },
  superseded: { m2: 1 },
  letters: ["m3"],
  left: 0,
  adopted: 4,
};
const sends = [
  sent("m1"),
  sent("m2", "ok", true),
  sent("m3"),
  sent("m4", "fail"),
  sent("m5", "info"),
];
const violationsOf = (changed: Partial<MessageStores>, more: Send[] = []) =>
  checkMessages([...sends, ...more], { ...stores, ...changed }).violations.join("\n");

describe("I7: messages", () => {
  test("messages that took effect, were superseded, refused or dead-lettered pass", () => {
    const found = checkMessages(sends, stores);
    expect(found.violations).toEqual([]);
    expect(found.reached).toEqual({
      effects: 1,
      redeliveries: 1,
      superseded: 1,
      dead_letters: 1,
      refused: 1,
      adoptions: 4,
    });
  });

  test.for<[string, Partial<MessageStores>, Send[], RegExp]>([
    ["an accepted one that is nowhere", { letters: [] }, [], /m3 was accepted and is nowhere/],
    [
      "a refused one that is somewhere",
      { effects: { m1: 1, m4: 1 } },
      [],
      /m4 was refused and is somewhere/,
    ],
    [
      "an older attempt that took effect",
      {},
      [sent("m1", "ok", true)],
      /m1 is of an older attempt and took effect/,
    ],
    ["one that is left", { left: 1 }, [], /1 messages are still in an inbox/],
  ])("are not: %s", ([, changed, more, sentence]) => {
    expect(violationsOf(changed, more)).toMatch(sentence);
  });
});
