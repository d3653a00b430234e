import assert from "node:assert";
import { setTimeout as wait } from "node:timers/promises";
import { JobFailed, type Session } from "@tenure/sdk";
import { askRedis } from "@tenure/testing/stores/redis-ask";
import type { Instance } from "./fleet.ts";
import { createJobScene, type JobScene, PATIENT, POOL } from "./jobs-scene.ts";
import type { Proof, ProofRun } from "./proof.ts";

interface Plan {
  seconds: number;
  perSecond: number;
  sampleEveryMs: number;
  /** Characters of each result: with these the default bound is reached well within the run. */
  resultChars: number;
  env: Record<string, string>;
}

const PLANS: Record<ProofRun["size"], Plan> = {
  full: { seconds: 3_600, perSecond: 300, sampleEveryMs: 30_000, resultChars: 4_000, env: {} },
  ci: {
    ...{ seconds: 12, perSecond: 100, sampleEveryMs: 1_000, resultChars: 4_000 },
    env: { TENURE_JOBS_ENDED_BYTES_MAX: "4000000" },
  },
};
const SESSIONS = 4;
const WORKERS = 2;
const CAPACITY = 64;
/** How much more than at the bound Redis may use later: its allocator's fragments and the moment of a sample. */
const GROWTH_MAX = 1.15;
const SHOWN = 25;

interface Sample {
  atS: number;
  serverMb: number;
  redisMb: number;
  ended: number;
  endedMb: number;
  bodiesDropped: number;
}

/** What is kept of ended jobs has a bound, and memory is flat once it is reached. */
export const jobsSoak: Proof = {
  name: "jobs-soak",
  summary: "a steady rate of jobs: memory of the server and of Redis is flat after the bound",
  async run({ size, print }) {
    const plan = PLANS[size];
    const scene = await createJobScene("redis", { env: { ...PATIENT, ...plan.env } });
    try {
      await soak(scene, plan, print);
    } finally {
      await scene.stop();
    }
  },
};

async function soak(scene: JobScene, plan: Plan, print: ProofRun["print"]): Promise<void> {
  const instance = await scene.startInstance();
  for (let n = 0; n < WORKERS; n++)
    await scene.startWorker({ url: instance.url, capacity: CAPACITY });
  const sessions = Array.from({ length: SESSIONS }, () => scene.openSession({ url: instance.url }));
  const load = startLoad(sessions, plan);
  const samples = await sampleWhile(scene, instance, plan);
  const { submitted, succeeded, failures } = await load.finish();
  print("seconds  server MB  Redis MB  ended jobs  counted MB  bodies dropped");
  const step = Math.max(1, Math.floor(samples.length / SHOWN));
  for (const sample of samples.filter((_, index) => (index + 1) % step === 0)) print(rowOf(sample));
  print(`${succeeded} of ${submitted} jobs succeeded at ${plan.perSecond}/s`);
  for (const failure of failures.slice(0, 3)) print(`one failed: ${failure}`);
  // A machine that is busy for minutes may cost some; what is measured here is memory.
  assert.ok(succeeded >= 0.99 * submitted, `${submitted - succeeded} jobs failed`);
  judge(samples, print);
}

function judge(samples: readonly Sample[], print: ProofRun["print"]): void {
  const bound = samples.findIndex(({ bodiesDropped }) => bodiesDropped > 0);
  assert.ok(bound >= 0, "the bound was never reached: the run is too short");
  const [atBound, ...after] = samples.slice(bound);
  assert.ok(after.length >= 3, "the bound was reached too late to judge what follows");
  for (const what of ["redisMb", "serverMb"] as const) {
    const most = Math.max(...after.map((sample) => sample[what]));
    print(
      `${what}: ${atBound![what].toFixed(0)} at the bound (${atBound!.atS.toFixed(0)} s), ` +
        `at most ${most.toFixed(0)} after it`,
    );
  }
  const redisMax = Math.max(...after.map(({ redisMb }) => redisMb));
  assert.ok(redisMax <= atBound!.redisMb * GROWTH_MAX, "Redis grew after the bound");
  // The heap of a server has a size of its own that it grows to; it must not follow the number of jobs.
  const half = Math.floor(after.length / 2);
  const mean = (part: readonly Sample[]) =>
    part.reduce((sum, { serverMb }) => sum + serverMb, 0) / part.length;
  const [early, late] = [mean(after.slice(0, half)), mean(after.slice(half))];
  assert.ok(late <= early * GROWTH_MAX, `the server grew after the bound: ${early} to ${late} MB`);
}

async function sampleWhile(
  scene: JobScene,
  instance: Instance,
  { seconds, sampleEveryMs }: Plan,
): Promise<Sample[]> {
  const startedMs = performance.now();
  const samples: Sample[] = [];
  while (performance.now() - startedMs < seconds * 1_000) {
    await wait(sampleEveryMs);
    const figures = await (await fetch(`${instance.url}/metrics`)).text();
    const figure = (name: string) =>
      Number(new RegExp(`^${name} (\\S+)$`, "m").exec(figures)?.[1] ?? 0);
    const memory = await askRedis(scene.redis[0]!.port, "INFO memory");
    samples.push({
      atS: (performance.now() - startedMs) / 1_000,
      serverMb: instance.rssMb(),
      redisMb: Number(/used_memory:(\d+)/.exec(memory)?.[1] ?? 0) / 2 ** 20,
      ended: figure("tenure_job_ended"),
      endedMb: figure("tenure_job_ended_bytes") / 2 ** 20,
      bodiesDropped: figure("tenure_job_bodies_dropped_total"),
    });
  }
  return samples;
}

/** Counts only: what the client keeps of a million jobs must not be what is measured. */
function startLoad(sessions: readonly Session[], { perSecond, resultChars }: Plan) {
  const stopping = new AbortController();
  let [submitted, succeeded, open] = [0, 0, 0];
  const failures: unknown[] = [];
  let allEnded = () => {};

  function submit(): void {
    const session = sessions[submitted % sessions.length]!;
    const payload = { say: "soak", result_chars: resultChars };
    submitted += 1;
    open += 1;
    session
      .submit({ pool: POOL, payload })
      .then(() => {
        succeeded += 1;
      })
      .catch((error) => failures.push(error instanceof JobFailed ? error.message : error))
      .finally(() => {
        open -= 1;
        if (open === 0) allEnded();
      });
  }

  const submitting = (async () => {
    const startedMs = performance.now();
    while (!stopping.signal.aborted) {
      const due = ((performance.now() - startedMs) / 1_000) * perSecond;
      while (submitted < due) submit();
      await wait(10);
    }
  })();

  return {
    async finish() {
      stopping.abort();
      await submitting;
      const ended = new Promise<void>((resolve) => {
        allEnded = resolve;
      });
      if (open > 0) await ended;
      return { submitted, succeeded, failures };
    },
  };
}

const rowOf = ({ atS, serverMb, redisMb, ended, endedMb, bodiesDropped }: Sample): string =>
  [
    ...[
      atS.toFixed(0).padStart(7),
      serverMb.toFixed(0).padStart(9),
      redisMb.toFixed(0).padStart(8),
    ],
    ...[String(ended).padStart(10), endedMb.toFixed(0).padStart(10)],
    String(bodiesDropped).padStart(14),
  ].join("  ");
