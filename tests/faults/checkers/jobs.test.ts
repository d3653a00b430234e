import { describe, expect, test } from "vitest";
import {
  checkJobs,
  type JobHistory,
  type JobStores,
  type Run,
  type Submit,
  type Told,
} from "./jobs.ts";

const body = (n: string, run: string) => ({ n, run });
const submitted = (requestId: string, told: Told, n = requestId): Submit => ({
  process: requestId,
  f: "submit",
  asked: { request_id: requestId, via: "session", payload: { n } },
  type: "ok",
  answered: told,
  startNs: 0,
  endNs: 1,
});
const ran = (jobId: string, attemptId: number, node: string, run: string): Run => ({
  process: node,
  f: "run",
  asked: { job_id: jobId, attempt_id: attemptId, request_id: "r", node, run },
  type: "ok",
  answered: {},
  startNs: 0,
  endNs: 1,
});
const ended = (jobId: string, attemptId: number, n: string, run: string): Told => ({
  ...{ job_id: jobId, outcome: "succeeded", attempt_id: attemptId, body: body(n, run) },
});

const calm: JobHistory = {
  submits: [
    submitted("r1", ended("j1", 2, "r1", "x2")),
    submitted("r1", ended("j1", 2, "r1", "x2")),
  ],
  runs: [ran("j1", 1, "a", "x1"), ran("j1", 2, "b", "x2")],
  slots: [{ node: "a", used: 2, capacity: 2 }],
  told: [],
};
const stores: JobStores = {
  records: { j1: { request_id: "r1", state: "RELEASED", attempt_id: 2, outcome: "succeeded" } },
  slots: 0,
  due: 0,
};
const violationsOf = (changed: Partial<JobHistory>, changedStores: Partial<JobStores> = {}) =>
  checkJobs({ ...calm, ...changed }, { ...stores, ...changedStores }).violations.join("\n");

describe("I4, I5, I6: jobs", () => {
  test("requests that are one job with one end pass", () => {
    expect(violationsOf({})).toBe("");
    expect(checkJobs(calm, stores).reached).toMatchObject({
      jobs: 1,
      repeated_requests: 1,
      reassigned: 1,
      stale_runs: 1,
    });
  });

  const cases: [string, Partial<JobHistory>, Partial<JobStores>, RegExp][] = [
    [
      "two jobs of one request",
      { submits: [...calm.submits, submitted("r1", ended("j2", 1, "r1", "x2"))] },
      {},
      /request r1 has 2 jobs: j1, j2/,
    ],
    [
      "a record of another job for the same request",
      {},
      {
        records: {
          ...stores.records,
          j9: { request_id: "r1", state: "RUNNING", attempt_id: 1, outcome: "" },
        },
      },
      /request r1 has 2 jobs: j1, j9/,
    ],
    [
      "two outcomes of one job",
      { told: [{ ...ended("j1", 2, "r1", "x2"), outcome: "failed", request_id: "r1" }] },
      {},
      /job j1 ended as .* and as failed/,
    ],
    [
      "two results of one job",
      { told: [{ ...ended("j1", 2, "r1", "x9"), request_id: "r1" }] },
      {},
      /by x2 and as .* by x9/,
    ],
    [
      "an end that its record does not know",
      {},
      {
        records: {
          j1: { request_id: "r1", state: "RUNNING", attempt_id: 2, outcome: "succeeded" },
        },
      },
      /was told to have ended and is RUNNING/,
    ],
    [
      "an end other than the record's",
      {},
      {
        records: { j1: { request_id: "r1", state: "RELEASED", attempt_id: 3, outcome: "failed" } },
      },
      /its record says failed in 3/,
    ],
    [
      "one attempt on two nodes",
      { runs: [...calm.runs, ran("j1", 2, "c", "x3")] },
      {},
      /attempt 2 ran on b and c/,
    ],
    [
      "an attempt after the end",
      { runs: [...calm.runs, ran("j1", 3, "c", "x3")] },
      {},
      /ended in attempt 2 and ran again as 3/,
    ],
    [
      "the result of an older attempt",
      { submits: [submitted("r1", ended("j1", 2, "r1", "x1"))] },
      {},
      /with the result of attempt 1/,
    ],
    [
      "a result that nobody made",
      { submits: [submitted("r1", ended("j1", 2, "r1", "x7"))] },
      {},
      /with the result of no run/,
    ],
    [
      "somebody else's result",
      { submits: [submitted("r1", ended("j1", 2, "r2", "x2"))] },
      {},
      /somebody else's result/,
    ],
    [
      "a slot too many",
      { slots: [{ node: "a", used: 3, capacity: 2 }] },
      {},
      /a has 3 slots in use, its capacity is 2/,
    ],
    ["a slot that leaked", {}, { slots: 1 }, /1 slots are in use after all jobs have ended/],
    ["work left in the index", {}, { due: 2 }, /2 entries of the due index are left/],
  ];
  test.for(cases)("catch %s", ([, changed, changedStores, sentence]) => {
    expect(violationsOf(changed, changedStores)).toMatch(sentence);
  });
});
