import type { Findings } from "../workload.ts";
import { createViolations, groupBy, type Operation, type Violations } from "./operations.ts";

export interface SubmitAsk {
  request_id: string;
  /** By which way, for whoever reads the history. */
  via: string;
  payload: { n: string };
}

/** The end of a job as a caller received it. */
export interface Told {
  job_id: string;
  outcome: string;
  attempt_id: number;
  node_id?: string | undefined;
  body?: { n: string; run: string } | undefined;
}

/** A run of a job on a worker, as the worker saw it. */
export interface RunAsk {
  job_id: string;
  attempt_id: number;
  request_id: string;
  node: string;
  run: string;
}

export interface SlotsSeen {
  node: string;
  used: number;
  capacity: number;
}

export interface JobStores {
  /** By job id: its record. */
  records: Record<string, JobRecord>;
  /** Slots in use now, and entries of the due index. */
  slots: number;
  due: number;
}

export interface JobRecord {
  request_id: string;
  state: string;
  attempt_id: number;
  outcome: string;
}

export type Submit = Operation<SubmitAsk, Told>;
export type Run = Operation<RunAsk, unknown>;

export interface JobHistory {
  submits: readonly Submit[];
  runs: readonly Run[];
  slots: readonly SlotsSeen[];
  /** Results that sessions were told beside the answer to their submit. */
  told: readonly (Told & { request_id: string })[];
}

/** I4, I5, I6: one job per request, one outcome per job, no slot too many and none left. */
export function checkJobs({ submits, runs, slots, told }: JobHistory, stores: JobStores): Findings {
  const violations = createViolations();
  const answers = [
    ...submits
      .filter(({ type }) => type === "ok")
      .map(({ asked, answered }) => ({ ...answered, request_id: asked.request_id })),
    ...told,
  ];
  checkBindings(answers, stores, violations);
  const byJob = groupBy(answers, ({ job_id }) => job_id);
  for (const [jobId, own] of byJob) checkOutcome(jobId, own, stores, violations);
  checkRuns(runs, byJob, violations);
  checkBodies(submits, runs, violations);
  for (const { node, used, capacity } of slots)
    if (used > capacity)
      violations.add(`${node} has ${used} slots in use, its capacity is ${capacity}`);
  if (stores.slots > 0)
    violations.add(`${stores.slots} slots are in use after all jobs have ended`);
  if (stores.due > 0) violations.add(`${stores.due} entries of the due index are left`);
  const attempts = groupBy(runs, ({ asked }) => asked.job_id);
  return {
    checked: submits.length + runs.length + slots.length,
    violations: violations.all,
    reached: {
      jobs: byJob.size,
      repeated_requests: answers.length - byJob.size,
      reassigned: [...attempts.values()].filter((own) =>
        own.some(({ asked }) => asked.attempt_id > 1),
      ).length,
      unknown_outcomes: submits.filter(({ type }) => type === "info").length,
      stale_runs: staleRuns(runs, byJob),
    },
  };
}

/** Runs of attempts that had been given up: their results had to change nothing. */
function staleRuns(runs: readonly Run[], byJob: ReadonlyMap<string, Told[]>): number {
  return runs.filter(({ asked, type }) => {
    const ended = byJob.get(asked.job_id)?.[0];
    return type === "ok" && ended !== undefined && asked.attempt_id < ended.attempt_id;
  }).length;
}

/** One request, one job: of those who were told of it, and of the records there are. */
function checkBindings(
  answers: readonly (Told & { request_id: string })[],
  { records }: JobStores,
  violations: Violations,
): void {
  const kept = Object.entries(records).map(([job_id, { request_id }]) => ({ job_id, request_id }));
  for (const [requestId, own] of groupBy([...answers, ...kept], ({ request_id }) => request_id)) {
    const jobs = new Set(own.map(({ job_id }) => job_id));
    if (jobs.size > 1)
      violations.add(`request ${requestId} has ${jobs.size} jobs: ${[...jobs].join(", ")}`);
  }
}

/** Whoever was told how a job ended was told the same, and its record says it too. */
function checkOutcome(
  jobId: string,
  own: readonly Told[],
  { records }: JobStores,
  violations: Violations,
): void {
  const said = ({ outcome, attempt_id, body }: Told) =>
    `${outcome} in attempt ${attempt_id}${body ? ` by ${body.run}` : ""}`;
  const ends = new Set(own.map(said));
  if (ends.size > 1) violations.add(`job ${jobId} ended as ${[...ends].join(" and as ")}`);
  const record = records[jobId];
  const [first] = own;
  if (!record || !first) return;
  if (record.state !== "FINISHED" && record.state !== "RELEASED")
    violations.add(`job ${jobId} was told to have ended and is ${record.state}`);
  if (record.outcome !== first.outcome || record.attempt_id !== first.attempt_id)
    violations.add(
      `job ${jobId} was told as ${first.outcome} in attempt ${first.attempt_id}; its record says ${record.outcome} in ${record.attempt_id}`,
    );
}

/** An attempt runs on one node, and none begins after the job has ended. */
function checkRuns(
  runs: readonly Run[],
  byJob: ReadonlyMap<string, Told[]>,
  violations: Violations,
): void {
  for (const [attempt, own] of groupBy(
    runs,
    ({ asked }) => `${asked.job_id} attempt ${asked.attempt_id}`,
  )) {
    const nodes = new Set(own.map(({ asked }) => asked.node));
    if (nodes.size > 1) violations.add(`job ${attempt} ran on ${[...nodes].join(" and ")}`);
  }
  for (const { asked } of runs) {
    const ended = byJob.get(asked.job_id)?.[0];
    if (ended && asked.attempt_id > ended.attempt_id)
      violations.add(
        `job ${asked.job_id} ended in attempt ${ended.attempt_id} and ran again as ${asked.attempt_id}`,
      );
  }
}

/** A result is what a run of that very attempt returned, for what was asked. */
function checkBodies(
  submits: readonly Submit[],
  runs: readonly Run[],
  violations: Violations,
): void {
  const byName = new Map(runs.map((run) => [run.asked.run, run]));
  for (const { asked, answered, type } of submits) {
    if (type !== "ok" || answered.outcome !== "succeeded") continue;
    const run = answered.body && byName.get(answered.body.run);
    if (answered.body?.n !== asked.payload.n)
      violations.add(`request ${asked.request_id} was answered with somebody else's result`);
    else if (run?.asked.job_id !== answered.job_id || run.asked.attempt_id !== answered.attempt_id)
      violations.add(
        `job ${answered.job_id} ended in attempt ${answered.attempt_id} with the result of ${run ? `attempt ${run.asked.attempt_id}` : "no run"}`,
      );
  }
}
