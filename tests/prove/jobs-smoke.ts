import assert from "node:assert";
import { HOT_KINDS, type HotKind } from "./fleet.ts";
import { type Answer, assertEndedOnce, createJobScene, POOL } from "./jobs-scene.ts";
import type { Proof, ProofRun } from "./proof.ts";

/** What a session hears of a job that takes its time. */
const STATES = ["DISPATCHED", "ACCEPTED", "RUNNING"];
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
  const scene = await createJobScene(hot);
  try {
    const a = await scene.startInstance();
    const b = await scene.startInstance();
    await scene.startWorker({ url: a.url, capacity: 50 });
    const session = scene.openSession({ url: b.url });
    const startedMs = performance.now();
    await Promise.all(
      Array.from({ length: count }, async (_, n) => {
        const payload = { say: `hello ${n}`, work_ms: 100 };
        const job = session.submit<Answer>({ pool: POOL, payload });
        const states: string[] = [];
        for await (const event of job) if (event.type === "job_update") states.push(event.state);
        const result = await job;
        assert.equal(result.body.say, payload.say, "the answer belongs to the question");
        assert.deepEqual(states, STATES, "what the session heard");
        const { timeline } = await assertEndedOnce(a.url, result);
        const written = timeline.map(({ state }) => state).filter((state) => state !== "RELEASED");
        assert.deepEqual(written, TIMELINE, "what was written down");
      }),
    );
    const tookMs = Math.round(performance.now() - startedMs);
    print(`${hot}: ${count} jobs from b to a and back, ${TIMELINE.join(" → ")}; ${tookMs} ms`);
    await scene.untilAllSlotsAreFree();
  } finally {
    await scene.stop();
  }
}
