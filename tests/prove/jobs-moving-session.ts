import assert from "node:assert";
import { setTimeout as wait } from "node:timers/promises";
import { type FaultProxy, startProxy } from "@tenure/testing/processes/proxy";
import { createSeeded } from "@tenure/testing/seeded";
import { until } from "@tenure/testing/until";
import { HOT_KINDS, type HotKind } from "./fleet.ts";
import { outcomesOf, startLoad, unlucky } from "./jobs-load.ts";
import { createJobScene, PATIENT } from "./jobs-scene.ts";
import type { Proof, ProofRun } from "./proof.ts";

/** A result finds its session wherever that is by then. */
export const jobsMovingSession: Proof = {
  name: "jobs-moving-session",
  summary:
    "a session that moves between instances while its results arrive: each is seen and acknowledged",
  async run(run) {
    const kinds = run.size === "full" ? HOT_KINDS : HOT_KINDS.slice(0, 1);
    for (const hot of kinds) await runOn(hot, run);
  },
};

async function runOn(hot: HotKind, { size, seed, print }: ProofRun): Promise<void> {
  const moves = size === "full" ? 500 : 20;
  const scene = await createJobScene(hot, { env: PATIENT });
  const seeded = createSeeded(seed);
  const proxies: FaultProxy[] = [];
  try {
    const [a, b] = [await scene.startInstance(), await scene.startInstance()];
    for (const { url } of [a, b])
      proxies.push(await startProxy({ targetPort: Number(new URL(url).port) }));
    await scene.startWorker({ url: [a.url, b.url], capacity: 50 });
    await scene.startWorker({ url: [b.url, a.url], capacity: 50 });
    const seen: string[] = [];
    const session = scene.openSession({
      url: proxies.map(({ port }) => `http://127.0.0.1:${port}`),
      patienceMs: 300_000,
      // A moment between two connections is enough; this is not about waiting.
      backoff: { baseMs: 10, capMs: 200 },
      on: { ready: ({ instance_id }, origin) => seen.push(`${instance_id} ${origin}`) },
    });
    await until(() => seen.length > 0, { deadlineMs: 30_000, what: "the first connection" });
    const load = startLoad([session], { perSecond: 50, workMs: 20 });
    for (let move = 0; move < moves; move++) {
      await wait(seeded.between(20, 120));
      const connected = seen.length;
      for (const proxy of proxies) proxy.reset();
      await until(() => seen.length > connected, {
        deadlineMs: 60_000,
        what: "the next connection",
      });
    }
    const ended = await load.finish();
    const places = new Set(seen.map((entry) => entry.split(" ")[0]));
    const lost = seen.filter((entry) => entry.endsWith("lost")).length;
    print(
      `${hot}: ${moves} moves over ${places.size} instances: ${ended.length} jobs, ${outcomesOf(ended)}`,
    );
    assert.equal(places.size, 2, "it never moved");
    assert.equal(lost, 0, "the session was not the same any more");
    // Its nodes stayed where they were: there is no reason for any job not to succeed, nor to need another attempt.
    assert.deepEqual(unlucky(ended), [], "some did not succeed");
    assert(
      ended.every(({ result }) => result.attempt_id === 1),
      "a job was tried again",
    );
    await scene.untilAllSlotsAreFree();
    await scene.untilNothingIsUndelivered();
    print(`${hot}: every result was acknowledged`);
  } finally {
    for (const proxy of proxies) proxy.stop();
    await scene.stop();
  }
}
