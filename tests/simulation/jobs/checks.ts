import type { ServerToSession } from "@tenure/protocol";
import type { JobView } from "../../../packages/server/src/jobs/policy/job-table.ts";
import type { MemorySpace } from "../../../packages/server/src/store/memory-space.ts";
import type { Timeline } from "../timeline.ts";
import type { ServerParts } from "./parts.ts";

type JobResult = Extract<ServerToSession, { type: "job_result" }>;

export interface JobChecks {
  readonly violations: readonly string[];
  readonly reached: Readonly<Record<Counted, number>>;
  /** After a script: what it touched is looked at. */
  ran(name: string, keys: Record<string, string>): void;
  assigned(
    nodeId: string,
    message: { job_id: string; attempt_id: number; request_id: string },
  ): void;
  accepted(requestId: string, jobId: string): void;
  acked(nodeId: string, message: { job_id: string; attempt_id: number; outcome: string }): void;
  told(result: JobResult): void;
  fail(what: string): void;
}

const COUNTED = ["assigned", "retried", "applied", "stale", "duplicates", "told"] as const;
type Counted = (typeof COUNTED)[number];

/** Looks at every record and every set of slots after every script, and at everything that is said. */
export function createJobChecks({
  timeline,
  jobIn,
  space,
  capacityOf,
}: {
  timeline: Timeline;
  jobIn: ServerParts["jobIn"];
  space: () => MemorySpace;
  capacityOf: (nodeId: string) => number;
}): JobChecks {
  const violations: string[] = [];
  const reached = Object.fromEntries(COUNTED.map((name) => [name, 0])) as Record<Counted, number>;
  const records = new Map<string, JobView>();
  const jobOf = new Map<string, string>();
  const appliedBy = new Map<string, string>();
  const endOf = new Map<string, string>();

  function violated(invariant: string, what: string): void {
    violations.push(`${invariant} at ${timeline.monotonicMs().toFixed(0)} ms: ${what}`);
  }

  function checkRecord(script: string, key: string): void {
    const job = jobIn(space(), key);
    if (!job) return;
    // The store changes the object in place.
    const { state, attemptId, outcome, countedAttempts, attemptsMax } = job;
    const now = { state, attemptId, outcome, countedAttempts, attemptsMax };
    const before = records.get(key);
    records.set(key, now);
    if (!before) return;
    if (now.attemptId < before.attemptId)
      violated("I5", `${key}: ${script} went back to attempt ${now.attemptId}`);
    if (now.attemptId > before.attemptId) reached.retried += 1;
    if (!before.outcome) return;
    if (now.outcome !== before.outcome || now.attemptId !== before.attemptId)
      violated("I5", `${key}: ${script} made ${before.outcome} ${now.outcome ?? now.state}`);
    if (before.state === "RELEASED" && now.state !== "RELEASED")
      violated("I5", `${key}: ${script} brought it back to ${now.state}`);
  }

  function checkSlots(key: string): void {
    const nodeId = /\{node:(.+)\}/.exec(key)?.[1] ?? "";
    const nowMs = space().nowMs();
    const live = [...space().scores(key).values()].filter((untilMs) => untilMs > nowMs).length;
    if (live > capacityOf(nodeId))
      violated("I6", `${nodeId} has ${live} slots taken of ${capacityOf(nodeId)}`);
  }

  /** One request, one job: by what sessions are told and by what nodes are given. */
  function checkRequest(requestId: string, jobId: string): void {
    const known = jobOf.get(requestId) ?? jobId;
    jobOf.set(requestId, known);
    if (known !== jobId) violated("I4", `${requestId} has the jobs ${known} and ${jobId}`);
  }

  return {
    violations,
    reached,
    ran(name, keys) {
      if (keys.fsm) checkRecord(name, keys.fsm);
      if (keys.reserved) checkSlots(keys.reserved);
    },
    assigned(_, { job_id, request_id }) {
      reached.assigned += 1;
      checkRequest(request_id, job_id);
    },
    accepted: checkRequest,
    acked(nodeId, { job_id, attempt_id, outcome }) {
      if (outcome === "stale") reached.stale += 1;
      if (outcome === "duplicate") reached.duplicates += 1;
      if (outcome !== "applied") return;
      reached.applied += 1;
      // A result that may be tried again ends its attempt only: each attempt may be ended once.
      const attempt = `${job_id}:${attempt_id}`;
      const former = appliedBy.get(attempt);
      if (former !== undefined && former !== nodeId)
        violated("I5", `results of ${attempt} by ${former} and ${nodeId} were both applied`);
      appliedBy.set(attempt, nodeId);
    },
    told({ job_id, request_id, attempt_id, node_id, outcome, body, error }) {
      reached.told += 1;
      // A node puts its name and its attempt into what it answers.
      if (outcome === "succeeded" && body !== `${node_id}:${attempt_id}`)
        violated("I5", `${job_id} ended in attempt ${attempt_id} on ${node_id} with ${body}`);
      checkRequest(request_id, job_id);
      const end = JSON.stringify([attempt_id, outcome, body, error?.code]);
      const former = endOf.get(job_id) ?? end;
      endOf.set(job_id, former);
      if (former !== end) violated("I5", `${job_id} ended as ${former} and as ${end}`);
    },
    fail: (what) => violations.push(what),
  };
}
