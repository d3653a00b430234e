import type { JobState } from "@tenure/protocol";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { HOT_STORES, openTestHot, type TestHot } from "../../../testing/hot-stores.ts";
import { lost, NODE_A, NODE_B, newJob } from "../../../testing/jobs.ts";
import type { JobRecord } from "../job.ts";
import { type Caller, checkStep, type JobStep, stateAfter } from "../policy/job-table.ts";
import { TIMELINE_MAX } from "./job-codec.ts";
import { createJob, listen, readJob, voidJob } from "./job-store.ts";
import { type Advance, type Advanced, advance } from "./transition-store.ts";

const dispatched: JobStep = { event: "dispatched", affinity: "first" };
const ack: JobStep = { event: "ack" };
const started: JobStep = { event: "started" };
const result: JobStep = { event: "result", outcome: "succeeded" };
const failure: JobStep = { event: "result", outcome: "failed", reason: "no memory" };
const seenResult: JobStep = { event: "result", outcome: "succeeded", reserved: true };
const cancel: JobStep = { event: "give_up", outcome: "cancelled", reason: "by its client" };
const timeOut: JobStep = { event: "give_up", outcome: "timed_out" };
const released: JobStep = { event: "released", keepMs: 3_600_000 };
const drained: JobStep = { event: "reassign", reason: "drain", counts: false, avoid: false };

/** Every step there is, in each form that might matter. */
const STEPS = {
  dispatched,
  ack,
  started,
  result,
  "failed result": failure,
  "result of a slot seen": seenResult,
  reassign: lost,
  drain: drained,
  cancel,
  "time out": timeOut,
  released,
};

/** How a third attempt gets to every place a job can be in, and what it may look like there. */
const PLACES: Record<string, JobStep[]> = {
  CREATED: [],
  DISPATCHED: [dispatched],
  ACCEPTED: [dispatched, ack],
  RUNNING: [dispatched, ack, started],
  "FINISHED by a result": [dispatched, result],
  "FINISHED by a cancel": [dispatched, ack, cancel],
  "FINISHED before it had a node": [timeOut],
  "RELEASED after a result": [dispatched, result, released],
  "RELEASED after a cancel": [dispatched, cancel, released],
};

/** The first attempt, the former, the right one, and one that never was; on the right node, another, or none. */
function callersOf(step: JobStep): Caller[] {
  const saysWhere = ["dispatched", "ack", "started", "result"].includes(step.event);
  const nodes = saysWhere ? [NODE_A, NODE_B] : [NODE_A, NODE_B, undefined];
  return [1, 2, 3, 4].flatMap((attemptId) => nodes.map((nodeId) => ({ attemptId, nodeId })));
}

/** Between how a job got to its place and what is tried there. */
const PAUSE_MS = 7;

// The table walks through every store: each place, each step, each attempt and node it may come from.
describe.each(HOT_STORES)("the states of a job: %s", (kind) => {
  let store: TestHot;
  beforeAll(async () => {
    store = await openTestHot(kind);
  });
  afterAll(() => store.hot.close());

  const ask = (jobId: string, call: Caller & Pick<Advance, "steps" | "result">) =>
    advance(store.hot, { jobId, instanceId: "i1", ...call });
  const read = async (jobId: string): Promise<JobRecord> =>
    (await readJob(store.hot, jobId, { payload: true, result: true, timeline: true }))!;

  async function jobAt(steps: JobStep[]): Promise<string> {
    const job = newJob({ attemptsMax: 4 });
    await createJob(store.hot, job);
    await ask(job.jobId, { attemptId: 1, steps: [lost] });
    await ask(job.jobId, { attemptId: 2, steps: [lost] });
    if (steps.length > 0) {
      const there = await ask(job.jobId, { attemptId: 3, nodeId: NODE_A, steps, result: '"end"' });
      expect((there as Advanced).answers).toEqual(steps.map(() => "applied"));
    }
    return job.jobId;
  }

  /** Asks once and then again, and looks at all there is of the record before and after. */
  async function tryStep(jobId: string, caller: Caller, step: JobStep): Promise<void> {
    const before = await read(jobId);
    const first = await ask(jobId, { ...caller, steps: [step], result: '"other end"' });
    const after = await read(jobId);
    if (first.outcome !== "answered") throw new Error("the job is gone");
    const answer = first.answers[0]!;
    expect(answer).toBe(checkStep(before, caller, step));
    expect(first).toMatchObject(summaryOf(after));
    expect(first.formerNodeId).toBe(before.nodeId);
    if (answer === "applied") expectApplied({ before, after, caller, step });
    else expect(after).toEqual(before);

    const again = await ask(jobId, { ...caller, steps: [step], result: '"other end"' });
    expect((again as Advanced).answers).toEqual([answer === "applied" ? "duplicate" : answer]);
    expect(await read(jobId)).toEqual(after);
  }

  for (const [place, way] of Object.entries(PLACES)) {
    test.each(Object.entries(STEPS))(`${place}: %s`, async (_, step) => {
      const callers = callersOf(step);
      const jobs = await Promise.all(callers.map(() => jobAt(way)));
      store.advance(PAUSE_MS);
      await Promise.all(callers.map((caller, index) => tryStep(jobs[index]!, caller, step)));
    });
  }

  test("without a record nothing happens, and none comes into being", async () => {
    const { jobId } = newJob();
    const voided = newJob();
    await voidJob(store.hot, voided.jobId);
    for (const step of Object.values(STEPS)) {
      const call = { attemptId: 1, nodeId: NODE_A, steps: [step] };
      expect(await ask(jobId, call)).toEqual({ outcome: "absent" });
      expect(await ask(voided.jobId, call)).toEqual({ outcome: "absent" });
    }
    expect(await readJob(store.hot, jobId)).toBeUndefined();
    expect(await readJob(store.hot, voided.jobId)).toBeUndefined();
  });

  test("I5: steps that came together are taken in their order, each with its answer", async () => {
    const job = newJob({ sessionId: "s".repeat(32) });
    await createJob(store.hot, job);
    await ask(job.jobId, { attemptId: 1, nodeId: NODE_A, steps: [dispatched] });
    const steps = [ack, started, ack, result, failure, started, released, released];
    const answer = await ask(job.jobId, {
      attemptId: 1,
      nodeId: NODE_A,
      steps,
      result: '{"body":7}',
    });
    expect(answer).toEqual({
      outcome: "answered",
      answers: [
        "applied",
        "applied",
        "duplicate",
        "applied",
        "duplicate",
        "ended",
        "applied",
        "duplicate",
      ],
      state: "RELEASED",
      attemptId: 1,
      countedAttempts: 0,
      nodeId: NODE_A,
      formerNodeId: NODE_A,
      jobOutcome: "succeeded",
      listeners: [],
      nowMs: expect.any(Number),
    });
    const record = await read(job.jobId);
    expect(record).toMatchObject({ result: '{"body":7}', payload: undefined, affinity: "first" });
    expect(
      record.timeline.map(({ state, attempt_id, node_id }) => [state, attempt_id, node_id]),
    ).toEqual([
      ["CREATED", 1, undefined],
      ["DISPATCHED", 1, NODE_A],
      ["ACCEPTED", 1, NODE_A],
      ["RUNNING", 1, NODE_A],
      ["FINISHED", 1, NODE_A],
      ["RELEASED", 1, NODE_A],
    ]);
  });

  test("a result that overtakes `dispatched` counts only from the node that holds the slot", async () => {
    const { jobId } = newJob();
    await createJob(store.hot, newJob({ jobId }));
    const from = (nodeId: string, step: JobStep) =>
      ask(jobId, { attemptId: 1, nodeId, steps: [ack, started, step], result: '"r"' });
    expect(await from(NODE_B, result)).toMatchObject({ answers: ["early", "early", "unplaced"] });
    expect(await from(NODE_A, seenResult)).toMatchObject({
      answers: ["early", "early", "applied"],
      state: "FINISHED",
      nodeId: NODE_A,
    });
    expect(await from(NODE_B, seenResult)).toMatchObject({
      answers: ["other_node", "other_node", "other_node"],
    });
  });

  test("attempts ended by a drain do not count, and only failed nodes are avoided", async () => {
    const { jobId } = newJob();
    await createJob(store.hot, newJob({ jobId }));
    const end = async (attemptId: number, nodeId: string, step: JobStep) =>
      ask(jobId, { attemptId, nodeId, steps: [dispatched, step] });
    await end(1, NODE_A, lost);
    await end(2, NODE_B, drained);
    expect(await read(jobId)).toMatchObject({
      attemptId: 3,
      countedAttempts: 1,
      avoid: [NODE_A],
      lastFailure: "drain",
      nodeId: undefined,
    });
    await end(3, NODE_B, lost);
    expect(await read(jobId)).toMatchObject({ countedAttempts: 2, avoid: [NODE_B, NODE_A] });
  });

  test("an attempt too many is refused, and the job stays where it was", async () => {
    const { jobId } = newJob();
    await createJob(store.hot, newJob({ jobId, attemptsMax: 2 }));
    const end = async (attemptId: number, step: JobStep) =>
      ask(jobId, { attemptId, nodeId: NODE_A, steps: [dispatched, step] });
    expect(await end(1, drained)).toMatchObject({ answers: ["applied", "applied"], attemptId: 2 });
    expect(await end(2, lost)).toMatchObject({ answers: ["applied", "applied"], attemptId: 3 });
    expect(await end(3, lost)).toMatchObject({
      answers: ["applied", "exhausted"],
      state: "DISPATCHED",
      attemptId: 3,
      countedAttempts: 1,
      nodeId: NODE_A,
    });
    expect(await end(3, drained)).toMatchObject({
      answers: ["duplicate", "applied"],
      attemptId: 4,
    });
  });

  test("the call that ends a job gets its listeners, once and within bounds", async () => {
    const { jobId } = newJob();
    expect(await listen(store.hot, jobId, "i1")).toBeUndefined();
    await createJob(store.hot, newJob({ jobId }));
    for (const instance of ["i1", "i", "i1", "i22"]) await listen(store.hot, jobId, instance);
    const end = { attemptId: 1, nodeId: NODE_A, steps: [cancel] };
    expect(await ask(jobId, end)).toMatchObject({ listeners: ["i22", "i", "i1"] });
    expect(await ask(jobId, end)).toMatchObject({ answers: ["duplicate"], listeners: [] });
    expect(await listen(store.hot, jobId, "i3")).toMatchObject({ state: "FINISHED", attemptId: 1 });
    for (let n = 0; n < 100; n++) await listen(store.hot, jobId, `${n}-`.padEnd(128, "x"));
    expect((await read(jobId)).listeners.length).toBeLessThanOrEqual(12);
  });

  test("the times in a record are the store's", async () => {
    const { jobId } = newJob();
    await createJob(store.hot, newJob({ jobId }));
    const { createdMs, attemptMs, stateMs } = await read(jobId);
    expect([attemptMs, stateMs]).toEqual([createdMs, createdMs]);
    store.advance(100);
    await ask(jobId, { attemptId: 1, nodeId: NODE_A, steps: [dispatched] });
    expect(await read(jobId)).toMatchObject({ attemptMs: createdMs, stateMs: createdMs + 100 });
    store.advance(100);
    await ask(jobId, { attemptId: 1, steps: [lost] });
    expect(await read(jobId)).toMatchObject({
      createdMs,
      attemptMs: createdMs + 200,
      stateMs: createdMs + 200,
    });
  });

  test("a timeline is bounded, its newest entries stay, and any words of a worker survive", async () => {
    const { jobId } = newJob();
    await createJob(store.hot, newJob({ jobId, attemptsMax: 1_000 }));
    const reason = 'a|b "quoted" \\ \u{1f4a5} \ud800 \r\n end';
    for (let attemptId = 1; attemptId <= TIMELINE_MAX; attemptId++) {
      const steps: JobStep[] = [dispatched, { ...lost, reason } as JobStep];
      await ask(jobId, { attemptId, nodeId: NODE_A, steps });
    }
    const { timeline, attemptId, avoid, lastFailure } = await read(jobId);
    expect(timeline).toHaveLength(TIMELINE_MAX);
    expect(attemptId).toBe(TIMELINE_MAX + 1);
    expect(timeline.at(-1)).toMatchObject({ state: "CREATED", attempt_id: TIMELINE_MAX + 1 });
    expect(timeline.at(-1)!.reason).toBe('a|b "quoted" \\ \u{1f4a5} \ufffd   end');
    expect(lastFailure).toBe(timeline.at(-1)!.reason);
    expect(new Set(avoid)).toEqual(new Set([NODE_A]));
  });

  test("64 instances want to place one attempt: one does, and all learn where it is", async () => {
    const { jobId } = newJob();
    await createJob(store.hot, newJob({ jobId }));
    const nodes = Array.from({ length: 64 }, (_, n) => String(n).padStart(44, "A"));
    const answers = await Promise.all(
      nodes.map((nodeId) => ask(jobId, { attemptId: 1, nodeId, steps: [dispatched] })),
    );
    const outcomes = answers.map((answer) => (answer as Advanced).answers[0]);
    expect(outcomes.filter((outcome) => outcome === "applied")).toHaveLength(1);
    expect(outcomes.filter((outcome) => outcome === "other_node")).toHaveLength(63);
    const winner = nodes[outcomes.indexOf("applied")]!;
    expect(answers.every((answer) => (answer as Advanced).nodeId === winner)).toBe(true);
  });

  test("a result, a lost node and a cancel at the same instant: one of them ends the attempt", async () => {
    for (let round = 0; round < 20; round++) {
      const jobId = await jobAt([dispatched, ack]);
      const about = { attemptId: 3, nodeId: NODE_A };
      const answers = await Promise.all(
        [result, lost, cancel].map((step) => ask(jobId, { ...about, steps: [step] })),
      );
      const applied = answers.filter((answer) => (answer as Advanced).answers[0] === "applied");
      expect(applied).toHaveLength(1);
    }
  });
});

/** The state that `advance` returns besides its answers. */
function summaryOf(record: JobRecord) {
  const { state, attemptId, countedAttempts, nodeId } = record;
  const jobOutcome = record.outcome;
  return { state, attemptId, countedAttempts, nodeId, jobOutcome };
}

function expectApplied(change: {
  before: JobRecord;
  after: JobRecord;
  caller: Caller;
  step: JobStep;
}): void {
  const { before, after, caller, step } = change;
  const to: JobState = stateAfter(before.state, step.event);
  expect(after.state).toBe(to);
  expect(after.attemptId).toBe(before.attemptId + (step.event === "reassign" ? 1 : 0));
  expect(after.createdMs).toBe(before.createdMs);
  expect(after.timeline).toHaveLength(before.timeline.length + 1);
  expect(after.timeline.at(-1)).toMatchObject({ state: to, attempt_id: after.attemptId });
  expect(after.stateMs).toBe(before.stateMs + PAUSE_MS);
  if (step.event === "dispatched" || step.event === "result")
    expect(after.nodeId).toBe(caller.nodeId);
  else expect(after.nodeId).toBe(step.event === "reassign" ? undefined : before.nodeId);
  if (to === "FINISHED") expect([after.payload, after.result]).toEqual([undefined, '"other end"']);
  else expect([after.payload, after.result]).toEqual([before.payload, before.result]);
}
