import assert from "node:assert";
import { join } from "node:path";
import type { Job } from "@tenure/protocol";
import { type JobResult, Session, type SessionOptions } from "@tenure/sdk";
import { type RunningProcess, startProcess } from "@tenure/testing/processes/process";
import { repositoryRoot } from "@tenure/testing/repository";
import { until } from "@tenure/testing/until";
import { type FleetOptions, type HotKind, startFleet, type TestFleet } from "./fleet.ts";

/** A fleet with workers as processes and sessions of this process. `stop` ends all of them. */
export interface JobScene extends TestFleet {
  startWorker(options: WorkerSpec): Promise<RunningProcess>;
  openSession(options: SessionOptions): Session;
  /** I6: within one expiry of a slot all are free. */
  untilAllSlotsAreFree(): Promise<void>;
  untilNothingIsUndelivered(): Promise<void>;
  /** Until no job is in the recovery index and no turn is open. */
  untilNothingIsLeft(): Promise<void>;
}

export interface WorkerSpec {
  url: string | string[];
  capacity: number;
  pools?: string[];
}

export const POOL = "proof";

/** Deadlines that no machine is too slow for: then every job must succeed, and one that does not was lost. */
export const PATIENT = {
  TENURE_JOB_TIMEOUT_PENDING_TIMEOUT_SECONDS: "120",
  TENURE_JOB_TIMEOUT_ACK_TIMEOUT_SECONDS: "60",
  TENURE_JOB_TIMEOUT_RUN_TIMEOUT_SECONDS: "120",
};

export async function createJobScene(hot: HotKind, options: FleetOptions = {}): Promise<JobScene> {
  const fleet = await startFleet(hot, options);
  const { prefix } = fleet;
  const workers: RunningProcess[] = [];
  const sessions: Session[] = [];
  async function untilNone(what: string, patterns: string[], from?: () => number): Promise<void> {
    const isNone = async () => {
      for (const pattern of patterns)
        if ((await fleet.countMembers(`${prefix}:v1:${pattern}`, from?.())) > 0) return false;
      return true;
    };
    await until(isNone, { deadlineMs: 60_000, everyMs: 200, what });
  }

  return {
    ...fleet,
    async startWorker({ url, capacity, pools = [POOL] }) {
      const program = join(repositoryRoot, "tests/prove/jobs-worker.js");
      const settings = JSON.stringify({ url, pools, capacity });
      const worker = startProcess({ command: process.execPath, args: [program, settings] });
      workers.push(worker);
      await worker.waitForLine(/^connected to/, 60_000);
      return worker;
    },
    openSession(sessionOptions) {
      const session = new Session(sessionOptions);
      sessions.push(session);
      return session;
    },
    // An expired slot is free, although its entry may still be there.
    untilAllSlotsAreFree: () =>
      untilNone("all slots free", ["nodes:{node:*}:reserved"], () => Date.now()),
    untilNothingIsUndelivered: () =>
      untilNone("every result acknowledged", ["sessions:{session:*}:undelivered"]),
    untilNothingIsLeft: () => untilNone("nothing left to recover", ["jobs:due:*", "turns:open"]),
    async stop() {
      await Promise.all(sessions.map((session) => session.detach()));
      await Promise.all(workers.map((worker) => worker.kill9()));
      await fleet.stop();
    },
  };
}

/** What a worker gives back here. */
export interface Answer {
  say: string;
  beganMs: number;
  pid: number;
}

export async function readJob(url: string, id: string): Promise<Job> {
  const response = await fetch(`${url}/api/v1/jobs/${id}`);
  assert.equal(response.status, 200, `job ${id} is not there: ${response.status}`);
  return (await response.json()) as Job;
}

/** I5: it has ended exactly once, and its record says so. */
export async function assertEndedOnce(
  url: string,
  { job_id, outcome }: Pick<JobResult, "job_id" | "outcome">,
): Promise<Job> {
  const job = await readJob(url, job_id);
  const ends = job.timeline.filter(({ state }) => state === "FINISHED").length;
  assert.deepEqual({ ends, outcome: job.outcome }, { ends: 1, outcome }, `job ${job_id}`);
  return job;
}
