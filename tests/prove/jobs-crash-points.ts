import assert from "node:assert";
import { randomUUID } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Job } from "@tenure/protocol";
import { Worker } from "@tenure/sdk";
import { scratchDirectory } from "@tenure/testing/scratch";
import { until } from "@tenure/testing/until";
import { HOT_KINDS, type HotKind, type Instance } from "./fleet.ts";
import { assertEndedOnce, createJobScene, type JobScene, PATIENT } from "./jobs-scene.ts";
import type { Proof, ProofRun } from "./proof.ts";

interface CrashPoint {
  /** The failpoint at which the instance kills itself with -9. */
  step: string;
  /** Who is connected to that instance; the others are at the one that lives on. */
  here: "both" | "session" | "worker";
  /** The job belongs to no turn: its steps up to DISPATCHED are one call. */
  alone?: boolean;
}

/** What was sent before gets out; what comes after the step is never begun. */
const SENT = "kill:300";

/** Every place between two steps of a job's way, with its session and its node on the instance that dies or beside it. */
const POINTS: readonly (CrashPoint & { action?: string })[] = [
  { step: "submit.after-record", here: "both", action: SENT },
  { step: "submit.after-due", here: "both", action: SENT },
  { step: "submit.after-binding", here: "both" },
  { step: "submit.after-record", here: "both", alone: true, action: SENT },
  { step: "submit.after-due", here: "both", alone: true, action: SENT },
  { step: "submit.after-binding", here: "both", alone: true },
  { step: "dispatch.after-reserve", here: "both", alone: true },
  { step: "dispatch.after-dispatched", here: "both", alone: true },
  { step: "turn.before-join", here: "both" },
  { step: "dispatch.after-reserve", here: "both" },
  { step: "dispatch.after-dispatched", here: "both" },
  { step: "dispatch.after-sent", here: "both", action: SENT },
  { step: "dispatch.after-rung", here: "session" },
  { step: "delivery.before-acknowledge", here: "worker" },
  { step: "result.before-finished", here: "worker" },
  { step: "result.after-finished", here: "both" },
  { step: "result.after-undelivered", here: "worker" },
  { step: "result.after-freed", here: "both" },
  { step: "result.after-released", here: "both" },
  { step: "result.after-delivered", here: "both" },
  // The end of a job without a turn is one call with its release, and with the message to the session's instance.
  { step: "result.before-finished", here: "worker", alone: true },
  { step: "result.after-sent", here: "both", alone: true, action: SENT },
  { step: "result.after-sent", here: "worker", alone: true, action: SENT },
  { step: "result.after-finished", here: "both", alone: true },
  { step: "result.after-finished", here: "worker", alone: true },
  { step: "result.after-undelivered", here: "worker", alone: true },
  { step: "result.after-freed", here: "worker", alone: true },
  { step: "result.after-released", here: "worker", alone: true },
];

const TIMES = 20;

/** Only this one is patient: what was sent to a node and never arrived is found by the time to accept it. */
const PENDING = "TENURE_JOB_TIMEOUT_PENDING_TIMEOUT_SECONDS";

/** I5, I6 and I11, step by step. */
export const jobsCrashPoints: Proof = {
  name: "jobs-crash-points",
  summary:
    "kill -9 of an instance at every step of submit, dispatch, result and release: one job, one end, no slot left",
  async run(run) {
    const kinds = run.size === "full" ? HOT_KINDS : HOT_KINDS.slice(0, 1);
    for (const hot of kinds) await runOn(hot, run);
  },
};

async function runOn(hot: HotKind, { size, print }: ProofRun): Promise<void> {
  const left = Array.from({ length: size === "full" ? TIMES : 1 }, () => POINTS).flat();
  const crashes = left.length;
  const tookMs = new Map<string, number>();
  let runs = 0;
  // Each with stores of its own: an instance that is to die at a step of its job must not help out with another one.
  const lane = async () => {
    const scene = await createJobScene(hot, { env: { [PENDING]: PATIENT[PENDING] } });
    try {
      const survivor = await scene.startInstance();
      for (let point = left.shift(); point; point = left.shift()) {
        const crashed = await crash(scene, survivor, point);
        tookMs.set(point.step, Math.max(crashed.tookMs, tookMs.get(point.step) ?? 0));
        runs += crashed.runs;
      }
      await scene.untilAllSlotsAreFree();
      await scene.untilNothingIsUndelivered();
      await scene.untilNothingIsLeft();
    } finally {
      await scene.stop();
    }
  };
  await Promise.all(Array.from({ length: hot === "redis" ? 4 : 2 }, lane));
  const slowest = [...tookMs].sort((a, b) => b[1] - a[1]).slice(0, 3);
  print(
    `${hot}: ${crashes} instances killed at ${POINTS.length} steps: ${crashes} jobs, each ended once and succeeded ` +
      `(work was begun ${runs} times); slowest ${slowest.map(([step, ms]) => `${step} ${Math.round(ms)} ms`).join(", ")}`,
  );
  print(`${hot}: all slots are free, every result was acknowledged, no job and no turn is left`);
}

/** One job, and an instance that dies at one step of it. Whoever was connected there goes to the other one. */
async function crash(
  scene: JobScene,
  survivor: Instance,
  { step, here, alone, action = "kill" }: (typeof POINTS)[number],
): Promise<{ tookMs: number; runs: number }> {
  const control = join(scratchDirectory("failpoints"), "control");
  const [victim] = await Promise.all([
    scene.startInstance({
      env: { TENURE_FAILPOINTS_FILE: control },
      conditions: ["tenure-test"],
    }),
    scene.untilNothingIsLeft(),
  ]);
  const urlsOf = (who: "session" | "worker") =>
    here === "both" || here === who ? [victim.url, survivor.url] : [survivor.url];
  const pool = `pool-${randomUUID()}`;
  const ran: number[] = [];
  const worker = new Worker({
    url: urlsOf("worker"),
    pools: [pool],
    capacity: 1,
    run({ payload, attempt_id }) {
      ran.push(attempt_id);
      return payload;
    },
  });
  try {
    await untilSeen([victim.url, survivor.url], worker);
    const session = scene.openSession({ url: urlsOf("session"), patienceMs: 300_000 });
    const requestId = randomUUID();
    writeFileSync(control, `${step}=${action}`);
    const startedMs = performance.now();
    // It also closes its turn: that must come to its end as well.
    const said = { pool, payload: step, requestId };
    const result = alone
      ? await session.submit(said)
      : await session.turn().submit({ ...said, finalize: "manual" });
    const tookMs = performance.now() - startedMs;
    const { signal } = await victim.exited;
    assert.equal(signal, "SIGKILL", `${step} was never reached`);
    assert.deepEqual([result.outcome, result.body], ["succeeded", step]);
    await assertEndedOnce(survivor.url, result);
    const jobs = await jobsOf(survivor.url, requestId);
    assert.deepEqual(jobs, [result.job_id], `${step}: the request has these jobs`);
    return { tookMs, runs: ran.length };
  } finally {
    await worker.close({ withinMs: 0 });
  }
}

async function untilSeen(urls: string[], worker: Worker<never>): Promise<void> {
  const isSeen = async (url: string) => {
    if (!worker.nodeId) return false;
    const response = await fetch(`${url}/api/v1/nodes/${worker.nodeId}`);
    return response.ok && ((await response.json()) as { online: boolean }).online;
  };
  const all = async () => (await Promise.all(urls.map(isSeen))).every(Boolean);
  await until(all, { deadlineMs: 60_000, what: "a worker that both instances see" });
}

async function jobsOf(url: string, requestId: string): Promise<string[]> {
  const response = await fetch(`${url}/api/v1/jobs?limit=500`);
  const { items } = (await response.json()) as { items: Job[] };
  return items.filter((job) => job.request_id === requestId).map(({ job_id }) => job_id);
}
