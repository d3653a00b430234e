import assert from "node:assert";
import { setTimeout as wait } from "node:timers/promises";
import { JobFailed, type Session, Worker } from "@tenure/sdk";
import { until } from "@tenure/testing/until";
import type { Instance } from "./fleet.ts";
import { createJobScene, type JobScene, POOL } from "./jobs-scene.ts";
import type { Proof, ProofRun } from "./proof.ts";

const INSTANCES = 3;
const WORK_MS = 100;
/** Of all slots: with one in twenty free, `no_node` would mean that a free one was not found. */
const SHARE_IN_USE = 0.95;

/** The default of 10 s for waiting, but no other limit that a busy machine passes. */
const ENV = {
  TENURE_JOB_TIMEOUT_ACK_TIMEOUT_SECONDS: "60",
  TENURE_JOB_TIMEOUT_RUN_TIMEOUT_SECONDS: "120",
};

export const jobsAcross: Proof = {
  name: "jobs-across",
  summary: "workers and sessions at three instances: every free slot is found, and priority holds",
  async run({ size, print }: ProofRun) {
    const workers = size === "full" ? 200 : 30;
    const scene = await createJobScene("redis", { env: ENV });
    const started: Worker[] = [];
    try {
      const instances: Instance[] = [];
      for (let n = 0; n < INSTANCES; n++) instances.push(await scene.startInstance());
      for (let n = 0; n < workers; n++) started.push(startWorker(instances[n % INSTANCES]!));
      const ready = () => started.every(({ state }) => state === "ready");
      await until(ready, { deadlineMs: 60_000, what: `${workers} workers` });
      const sessions = instances.map(({ url }) => scene.openSession({ url }));
      await fillSlots(sessions, { slots: workers, forMs: size === "full" ? 20_000 : 4_000, print });
      await Promise.all(started.splice(1).map((worker) => worker.close()));
      await scene.untilAllSlotsAreFree();
      await waitInOrder(scene, sessions, print);
    } finally {
      await Promise.all(started.map((worker) => worker.close({ withinMs: 0 })));
      await scene.stop();
    }
  },
};

const order: number[] = [];

function startWorker({ url }: Instance): Worker {
  return new Worker<{ rank?: number }>({
    ...{ url, pools: [POOL], capacity: 1 },
    async run({ payload }) {
      if (payload.rank !== undefined) order.push(payload.rank);
      await wait(WORK_MS);
    },
  });
}

async function fillSlots(
  sessions: readonly Session[],
  { slots, forMs, print }: { slots: number; forMs: number; print: ProofRun["print"] },
): Promise<void> {
  const untilMs = performance.now() + forMs;
  const outcomes = new Map<string, number>();
  const one = async (at: number) => {
    while (performance.now() < untilMs) {
      const job = sessions[at % sessions.length]!.submit({ pool: POOL, payload: {} });
      const outcome = await job.then(
        () => "succeeded",
        (error: unknown) => (error instanceof JobFailed ? error.outcome : String(error)),
      );
      outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
    }
  };
  const atOnce = Math.floor(slots * SHARE_IN_USE);
  await Promise.all(Array.from({ length: atOnce }, (_, at) => one(at)));
  const words = [...outcomes].map(([outcome, count]) => `${count} ${outcome}`).join(", ");
  print(`${slots} workers of one slot at ${INSTANCES} instances, ${atOnce} jobs at once: ${words}`);
  assert.deepEqual([...outcomes.keys()], ["succeeded"], "a free slot was not found");
}

/** One worker is left. 40 jobs of priority 0 wait at its instance, and 20 of priority 9 at another. */
async function waitInOrder(
  scene: JobScene,
  [near, far]: readonly Session[],
  print: ProofRun["print"],
): Promise<void> {
  order.length = 0;
  const submit = (session: Session, rank: number) =>
    session.submit({ pool: POOL, payload: { rank }, priority: rank, pendingMs: 120_000 });
  const low = Array.from({ length: 40 }, () => submit(near!, 0));
  await until(() => order.length > 0, { what: "the first job" });
  const high = Array.from({ length: 20 }, () => submit(far!, 9));
  await Promise.all([...low, ...high]);
  const places = order.flatMap((rank, at) => (rank === 9 ? [at + 1] : []));
  print(
    `20 jobs of priority 9 behind 40 of priority 0 at the worker's own instance: run as number ` +
      `${places[0]} to ${places.at(-1)} of 60`,
  );
  assert(places.at(-1)! <= 40, "jobs of a higher priority waited behind the others");
  await scene.untilAllSlotsAreFree();
}
