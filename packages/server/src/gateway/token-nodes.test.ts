import { expect, test } from "vitest";
import { TokenNodes } from "./token-nodes.ts";

test("a token connects up to its limit of nodes, and each counts once however often it connects", () => {
  const nodes = new TokenNodes();
  expect([nodes.enter("t", "a", 2), nodes.enter("t", "b", 2)]).toEqual([true, true]);
  expect([nodes.enter("t", "a", 2), nodes.enter("t", "c", 2)]).toEqual([true, false]);
  expect(nodes.enter("other", "c", 2)).toBe(true);
  nodes.leave("t", "a");
  expect(nodes.enter("t", "c", 2)).toBe(false);
  nodes.leave("t", "a");
  expect(nodes.enter("t", "c", 2)).toBe(true);
});
