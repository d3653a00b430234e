import assert from "node:assert";
import { Worker } from "@tenure/sdk";
import { HOT_KINDS, type HotKind } from "./fleet.ts";
import { assertEndedOnce, createJobScene, PATIENT, POOL } from "./jobs-scene.ts";
import type { Proof, ProofRun } from "./proof.ts";

/** What a session hears of a job that takes its time. */
const STATES = ["DISPATCHED", "ACCEPTED", "RUNNING"];
const AT_ONCE = 20;
const TIMELINE = ["CREATED", ...STATES, "FINISHED"];

export const jobsSmoke: Proof = {
  name: "jobs-smoke",
  summary:
    "a worker on one instance, a session on the other: every state seen in order, on Redis and Cluster",
  async run(run) {
    for (const hot of HOT_KINDS) await runOn(hot, run);
  },
};

async function runOn(hot: HotKind, { size, print }: ProofRun): Promise<void> {
  const count = size === "full" ? 1_000 : 20;
  const scene = await createJobScene(hot, { env: PATIENT });
  // A job ends when its session has heard that it runs: one that ended in the same moment would skip states.
  const heard = new Map<string, () => void>();
  const untilHeard = (requestId: string) =>
    new Promise<void>((resolve) => heard.set(requestId, resolve));
  let worker: Worker | undefined;
  try {
    const a = await scene.startInstance();
    const b = await scene.startInstance();
    worker = new Worker({
      url: a.url,
      pools: [POOL],
      capacity: 50,
      async run({ request_id, payload }) {
        await untilHeard(request_id);
        return payload;
      },
    });
    const session = scene.openSession({ url: b.url });
    const startedMs = performance.now();
    const one = async (n: number) => {
      const say = `hello ${n}`;
      const job = session.submit({ pool: POOL, payload: say });
      const states: string[] = [];
      for await (const event of job) {
        if (event.type !== "job_update") continue;
        states.push(event.state);
        if (event.state === "RUNNING") heard.get(job.requestId)?.();
      }
      const result = await job;
      assert.equal(result.body, say, "the answer belongs to the question");
      assert.deepEqual(states, STATES, "what the session heard");
      const { timeline } = await assertEndedOnce(a.url, result);
      const written = timeline.map(({ state }) => state).filter((state) => state !== "RELEASED");
      assert.deepEqual(written, TIMELINE, "what was written down");
    };
    // As many at once as there are places: nobody's deadline runs while it waits for one.
    for (let n = 0; n < count; n += AT_ONCE)
      await Promise.all(Array.from({ length: Math.min(AT_ONCE, count - n) }, (_, m) => one(n + m)));
    const tookMs = Math.round(performance.now() - startedMs);
    print(`${hot}: ${count} jobs from b to a and back, ${TIMELINE.join(" → ")}; ${tookMs} ms`);
    await scene.untilAllSlotsAreFree();
  } finally {
    await worker?.close({ withinMs: 0 });
    await scene.stop();
  }
}
