import assert from "node:assert";
import { randomUUID } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import type { RedisServer } from "@tenure/testing/stores/redis";
import { askRedis } from "@tenure/testing/stores/redis-ask";
import { until } from "@tenure/testing/until";
import type { HotKind } from "./fleet.ts";
import { outcomesOf, slowest, startLoad, unlucky } from "./jobs-load.ts";
import { createJobScene, PATIENT, POOL } from "./jobs-scene.ts";
import type { Proof, ProofRun } from "./proof.ts";

interface Trouble {
  what: string;
  hot: HotKind;
  /** Whether an instance must say that it is not ready while it lasts. */
  isOutage: boolean;
  happen(redis: RedisServer[]): Promise<void>;
  end(redis: RedisServer[]): Promise<void>;
}

const LASTS_MS = 5_000;

const TROUBLES: readonly Trouble[] = [
  {
    what: "restarted with its data",
    hot: "redis",
    isOutage: true,
    happen: ([redis]) => redis!.stop(),
    end: ([redis]) => redis!.start(),
  },
  {
    what: "restarted empty",
    hot: "redis",
    isOutage: true,
    happen: ([redis]) => redis!.kill(),
    end: ([redis]) => redis!.restartEmpty(),
  },
  {
    what: "full",
    hot: "redis",
    isOutage: true,
    happen: async ([redis]) => void (await askRedis(redis!.port, "CONFIG SET maxmemory 1mb")),
    end: async ([redis]) => void (await askRedis(redis!.port, "CONFIG SET maxmemory 0")),
  },
  {
    what: "frozen",
    hot: "redis",
    isOutage: true,
    happen: ([redis]) => redis!.freeze(),
    end: ([redis]) => redis!.thaw(),
  },
  {
    what: "failed over",
    hot: "redis-cluster",
    isOutage: false,
    happen: ([master]) => master!.kill(),
    end: ([former]) => former!.start(),
  },
];

/** Whatever happens to Redis: the instances say so, go on by themselves, and jobs of living clients end. */
export const jobsRedis: Proof = {
  name: "jobs-redis",
  summary:
    "Redis restarted, emptied, full, frozen, failed over under load: every job of a living client ends",
  async run(run) {
    const troubles = run.size === "full" ? TROUBLES : TROUBLES.filter(({ what }) => CI.has(what));
    for (const trouble of troubles) await endure(trouble, run);
  },
};

const CI = new Set(["restarted empty", "frozen"]);

async function endure(trouble: Trouble, { size, print }: ProofRun): Promise<void> {
  const scene = await createJobScene(trouble.hot, {
    replicas: trouble.hot === "redis-cluster" ? 1 : 0,
    conf: { "cluster-node-timeout": "2000" },
    env: PATIENT,
  });
  try {
    const [a, b] = [await scene.startInstance(), await scene.startInstance()];
    await scene.startWorker({ url: [a.url, b.url], capacity: 20 });
    await scene.startWorker({ url: [b.url, a.url], capacity: 20 });
    const sessions = [a, b].map(({ url }) => scene.openSession({ url, patienceMs: 300_000 }));
    const load = startLoad(sessions, { perSecond: size === "full" ? 100 : 20, workMs: 50 });
    await wait(1_000);
    await trouble.happen(scene.redis);
    const noticedMs = trouble.isOutage ? await untilStatus([a.url, b.url], 503) : undefined;
    const refusals = trouble.isOutage ? await submitPlainly([a.url, b.url]) : [];
    await wait(LASTS_MS);
    await trouble.end(scene.redis);
    const recoveredMs = await untilStatus([a.url, b.url], 200);
    await wait(1_000);
    const ended = await load.finish();
    print(
      `${trouble.what}: ${noticedMs === undefined ? "" : `503 after ${noticedMs} ms, `}200 after ${recoveredMs} ms; ` +
        `${ended.length} jobs, ${outcomesOf(ended)}; slowest ${slowest(ended)} ms`,
    );
    for (const refusal of refusals)
      assert.deepEqual(refusal, { status: 503, code: "DEPENDENCY_DOWN", retryable: true });
    // All of them have ended, or `finish` had thrown: a refusal that is not retryable ends it. And nothing but the
    // store was in trouble, so none has a reason not to succeed.
    assert.deepEqual(unlucky(ended), [], "some did not succeed");
    await scene.untilAllSlotsAreFree();
  } finally {
    await scene.stop();
  }
}

/** What a client without an SDK is told. */
async function submitPlainly(urls: string[]): Promise<object[]> {
  return Promise.all(
    urls.map(async (url) => {
      const body = JSON.stringify({ request_id: randomUUID(), pool: POOL, payload: {} });
      const headers = { "content-type": "application/json" };
      const response = await fetch(`${url}/api/v1/jobs`, { method: "POST", headers, body });
      const { error } = (await response.json()) as { error?: { code: string; retryable: boolean } };
      return { status: response.status, code: error?.code, retryable: error?.retryable };
    }),
  );
}

async function untilStatus(urls: string[], status: 200 | 503): Promise<number> {
  const startedMs = performance.now();
  const all = async () => {
    const answers = await Promise.all(urls.map((url) => fetch(`${url}/health/ready`)));
    return answers.every((answer) => answer.status === status);
  };
  await until(all, { deadlineMs: 60_000, everyMs: 50, what: `${status} from every instance` });
  return Math.round(performance.now() - startedMs);
}
