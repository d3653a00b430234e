import assert from "node:assert";
import { setTimeout as wait } from "node:timers/promises";
import { createJobScene, PATIENT, POOL } from "./jobs-scene.ts";
import type { Proof, ProofRun } from "./proof.ts";

/** What the work of one job takes. */
const WORK_MS = 50;
const SPEAKERS = 50;
const PROBE_INTERVAL_MS = 20;
/** A busy machine is late by some hundred milliseconds; an instance that is stuck by many seconds. */
const LIMIT_MS = 2_000;

export const jobsWaiting: Proof = {
  name: "jobs-waiting",
  summary: "thousands of jobs wait, each with another need: the instance answers, and jobs go on",
  async run({ size, print }: ProofRun) {
    const many = size === "full" ? 5_000 : 500;
    const scene = await createJobScene("redis", { env: PATIENT });
    try {
      const { url } = await scene.startInstance();
      await scene.startWorker({ url, capacity: 4 });
      const speakers = Array.from({ length: SPEAKERS }, () => scene.openSession({ url }));
      const services = scene.openSession({ url });
      let ended = 0;
      const count = () => {
        ended += 1;
      };
      const payload = { work_ms: WORK_MS };
      for (let at = 0; at < many; at++) {
        const turn = speakers[at % SPEAKERS]!.turn();
        turn.submit({ pool: POOL, payload, finalize: "manual" }).then(count, () => {});
        // No worker offers it: it waits until it is given up.
        services.submit({ pool: POOL, payload, service: `service-${at}` }).catch(() => {});
      }
      const load = await probe(url, size === "full" ? 20_000 : 4_000, () => ended);
      print(
        `${many} waiting turns and ${many} service names: ${load.probes} looks at /health/live, ` +
          `p50 ${load.p50Ms} ms, p99 ${load.p99Ms} ms, worst ${load.worstMs} ms; ` +
          `${load.done} jobs ended meanwhile`,
      );
      assert(load.p99Ms < LIMIT_MS, `p99 of ${load.p99Ms} ms`);
      assert(load.done > 0, "no job ended while the others waited");
    } finally {
      await scene.stop();
    }
  },
};

async function probe(url: string, forMs: number, ended: () => number) {
  const untilMs = performance.now() + forMs;
  const before = ended();
  const tookMs: number[] = [];
  while (performance.now() < untilMs) {
    const askedMs = performance.now();
    await (await fetch(new URL("/health/live", url))).text();
    tookMs.push(Math.round(performance.now() - askedMs));
    await wait(PROBE_INTERVAL_MS);
  }
  const sorted = tookMs.toSorted((a, b) => a - b);
  const at = (share: number) => sorted[Math.floor((sorted.length - 1) * share)]!;
  const [p50Ms, p99Ms, worstMs] = [at(0.5), at(0.99), at(1)];
  return { p50Ms, p99Ms, worstMs, probes: sorted.length, done: ended() - before };
}
