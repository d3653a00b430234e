import { describe, expect, test } from "vitest";
import { checkTurns, type TurnJob } from "./turns.ts";

const job = (
  turn: string,
  turnId: string | undefined,
  nodeId: string,
  inPeace = true,
): TurnJob => ({
  process: turn,
  f: "turn",
  asked: { turn, place: 0, in_peace: inPeace },
  type: "ok",
  answered: { turn_id: turnId, node_id: nodeId, outcome: "succeeded" },
  startNs: 0,
  endNs: 1,
});
const violationsOf = (...jobs: TurnJob[]) => checkTurns(jobs).violations.join("\n");

describe("I8: turns", () => {
  test("turns with one name each and, without faults, one node pass", () => {
    const jobs = [job("t", "1", "a"), job("t", "1", "a"), job("u", "2", "b")];
    expect(checkTurns(jobs)).toEqual({
      checked: 3,
      violations: [],
      reached: { turns: 2, turns_in_peace: 2, turns_that_had_to_move: 0 },
    });
  });

  test("may move while something is disturbed", () => {
    const jobs = [job("t", "1", "a", false), job("t", "1", "b", false)];
    expect(checkTurns(jobs).violations).toEqual([]);
    expect(checkTurns(jobs).reached.turns_that_had_to_move).toBe(1);
  });

  test("may move on a machine that is out of breath", () => {
    const late = { ...job("t", "1", "b"), endNs: 6e9 };
    expect(checkTurns([job("t", "1", "a"), late]).violations).toEqual([]);
    expect(checkTurns([job("t", "1", "a"), late]).reached.turns_in_peace).toBe(0);
  });

  test("ignore a job that ended before it had joined its turn, and ran nowhere", () => {
    const nowhere = job("t", "1", "a");
    nowhere.answered = { outcome: "no_node" };
    expect(checkTurns([job("t", "1", "a"), nowhere]).violations).toEqual([]);
  });

  test.for<[string, TurnJob[], RegExp]>([
    ["two names of one turn", [job("t", "1", "a"), job("t", "2", "a")], /turn t has 2 names: 1, 2/],
    [
      "one name for two turns",
      [job("t", "1", "a"), job("u", "1", "a")],
      /turns t and u are both 1/,
    ],
    ["a move in peace", [job("t", "1", "a"), job("t", "1", "b")], /went to 2 nodes/],
    ["a job that belongs to no turn", [job("t", undefined, "a")], /belongs to no turn/],
  ])("catch %s", ([, jobs, sentence]) => {
    expect(violationsOf(...jobs)).toMatch(sentence);
  });
});
