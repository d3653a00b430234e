import { describe, expect, test } from "vitest";
import type { Operation } from "./operations.ts";
import type { Life } from "./processes.ts";
import type { ProgramLife } from "./programs.ts";
import { checkStops, type StopHistory, type StopJobAsk, type StopJobEnd } from "./stops.ts";

const RULES = {
  ...{ instance: "instance", worker: "worker", units: ["unit"], downMaxMs: 8_000 },
  stopMaxMs: { unit: 20_000, other: 10_000 },
};
const S = 1e9;
const FOREVER = Number.POSITIVE_INFINITY;

/** Ready a second after its start. */
function program(
  role: string,
  fromS: number,
  toS = FOREVER,
  stop?: ProgramLife["stop"],
): ProgramLife {
  return {
    ...{ role, name: `${role}-0`, start: 0, version: 0, of: 1 },
    ...{ spawnedNs: fromS * S, readyNs: (fromS + 1) * S, endedNs: toS * S },
    ...{ wasAsked: toS !== FOREVER, stop },
  };
}
const ended = (tookMs: number, code = 0) => ({ tookMs, code, signal: null });

const child = (startS: number, lastS: number, generation = 1): Life => ({
  ...{ id: "web", generation, pid: startS, node: "unit-0" },
  ...{ startNs: startS * S, lastNs: lastS * S },
});

const job = (outcome: string, fromS: number, toS: number): Operation<StopJobAsk, StopJobEnd> => ({
  ...{ process: "p", f: "job", type: "ok", startNs: fromS * S, endNs: toS * S },
  asked: { request_id: "r", via: "http" },
  answered: { job_id: "j", outcome, message: "its node was lost" },
});

function check(history: Partial<StopHistory>) {
  const { violations, reached } = checkStops(
    { jobs: [], children: [], programs: [], ...history },
    RULES,
  );
  return { violations, reached };
}

describe("orderly stops", () => {
  test("that end with 0 in time are no violation", () => {
    const programs = [
      program("unit", 0, 10, ended(19_000)),
      program("instance", 0, 10, ended(900)),
    ];
    expect(check({ programs })).toMatchObject({
      violations: [],
      reached: { stops_of_units: 1, stops_of_instances: 1, restarts_together: 1 },
    });
  });

  test.each([
    ["ended with 1", "unit", ended(25_000, 1)],
    ["took 21000 ms", "unit", ended(21_000)],
    ["took 11000 ms", "worker", ended(11_000)],
    ["did not end", "worker", undefined],
  ])("that went wrong are told: %s", (sentence, role, stop) => {
    expect(check({ programs: [program(role, 0, 10, stop)] }).violations[0]).toContain(sentence);
  });

  test("fail no job while a worker is there", () => {
    const programs = [program("worker", 0, 20, ended(10)), program("worker", 15)];
    const failed = job("attempts_exhausted", 12, 30);
    expect(check({ programs, jobs: [failed] }).violations).toEqual([
      "job j by http ended as attempts_exhausted although workers were free: its node was lost",
    ]);
  });

  test("may fail a job that had a moment without any worker", () => {
    const programs = [program("worker", 0, 20, ended(10)), program("worker", 25)];
    const found = check({ programs, jobs: [job("no_node", 12, 30), job("succeeded", 1, 2)] });
    expect(found).toMatchObject({ violations: [], reached: { jobs: 1 } });
  });

  test("leave a deployment down no longer than the bound, once something can run it", () => {
    const children = [child(1, 10), child(30, 40, 2)];
    const up = [program("instance", 0), program("unit", 0, 10, ended(10)), program("unit", 24)];
    expect(check({ children, programs: up })).toMatchObject({
      violations: [],
      reached: { moves: 1 },
    });
    const late = [program("instance", 0), program("unit", 0, 10, ended(10)), program("unit", 20)];
    expect(check({ children, programs: late }).violations).toEqual([
      "web was down for 10000 ms although an instance was ready and a node-unit was started, 8000 are allowed",
    ]);
  });

  test("count the time from the moment an instance is ready", () => {
    const children = [child(1, 10), child(30, 40)];
    const programs = [
      program("instance", 0, 10, ended(10)),
      program("instance", 24),
      program("unit", 0),
    ];
    expect(check({ children, programs }).violations).toEqual([]);
  });
});
