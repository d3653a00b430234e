import { expect, test } from "vitest";
import type { JobRecord } from "../job.ts";
import { recoveryAction } from "./recovery-policy.ts";

const NOW_MS = 1_000_000;

const record = (words: Partial<JobRecord>): JobRecord => ({
  jobId: "job",
  isSuspect: false,
  tenant: "default",
  requestId: "request",
  bodyHash: "hash",
  pool: "gpu",
  priority: 0,
  turn: false,
  originInstanceId: "a",
  pendingTimeoutMs: 10_000,
  ackTimeoutMs: 5_000,
  runTimeoutMs: 30_000,
  attemptsMax: 3,
  state: "CREATED",
  attemptId: 1,
  countedAttempts: 0,
  createdMs: NOW_MS,
  attemptMs: NOW_MS,
  stateMs: NOW_MS,
  persisted: true,
  avoid: [],
  listeners: [],
  timeline: [],
  ...words,
});

const after = (ms: number, words: Partial<JobRecord>) => recoveryAction(record(words), NOW_MS + ms);

test("a job without a record leaves the index", () => {
  expect(recoveryAction(undefined, NOW_MS)).toEqual({ do: "leave" });
});

test("an orphaned job that waits is bound if it is not, then placed, and given up after its limit", () => {
  expect(after(2_000, { persisted: false })).toEqual({ do: "bind" });
  expect(after(2_000, {})).toEqual({ do: "adopt" });
  expect(after(10_000, {})).toEqual({ do: "give_up" });
});

test("the time of a later attempt counts from its own beginning", () => {
  expect(after(12_000, { attemptId: 2, attemptMs: NOW_MS + 5_000 })).toEqual({ do: "adopt" });
});

test("a job on a node is looked at again, at the latest a moment after its deadline", () => {
  const state = "DISPATCHED";
  expect(after(1_000, { state })).toEqual({ do: "check_slot", inMs: 5_000 });
  expect(after(4_500, { state })).toEqual({ do: "check_slot", inMs: 1_500 });
  expect(after(5_500, { state })).toEqual({ do: "check_slot", inMs: 1_000 });
});

test("an orphaned job past its deadline is retried; an attempt that was never acknowledged does not count", () => {
  expect(after(6_000, { state: "DISPATCHED" })).toEqual({ do: "retry", reason: "instance_lost" });
  for (const state of ["ACCEPTED", "RUNNING"] as const) {
    expect(after(6_000, { state })).toMatchObject({ do: "check_slot" });
    expect(after(31_000, { state })).toEqual({ do: "retry", reason: "run_timeout" });
  }
});

test("a job that has ended is concluded, however late", () => {
  expect(after(0, { state: "FINISHED" })).toEqual({ do: "conclude", released: false });
  expect(after(1e9, { state: "RELEASED" })).toEqual({ do: "conclude", released: true });
});
