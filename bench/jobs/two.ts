import { cpus } from "node:os";
import { startPostgres } from "@tenure/testing/stores/postgres";
import { startRedis } from "@tenure/testing/stores/redis";
import type { BenchRun } from "../bench.ts";
import { countProcessorTime, type ProcessorTime, together } from "./count-fleet.ts";
import { startFleet } from "./fleets.ts";
import { createStage } from "./processes.ts";
import { FULL, medianTime, partsOf, ROUNDS, sumOf, WARM_UP_MS } from "./rates.ts";

const COST_MAX = 1.25;
/** Server, worker and submitter, twice, beside Redis: below that the second instance has no core to run on. */
const PROCESSES = 7;

/** One instance and two, each with a Redis of its own, in turns under the same load. */
export async function showTwo({ print }: BenchRun): Promise<void> {
  const [postgres, ...redises] = await Promise.all([startPostgres(), startRedis(), startRedis()]);
  const stage = createStage();
  try {
    const start = (mode: "redis" | "two", redisPort: number) =>
      startFleet(stage, mode, { postgresUri: postgres.uri(), redisPort });
    const fleets = [
      await start("redis", redises[0]!.port),
      await start("two", redises[1]!.port),
    ] as const;
    const measured: [ProcessorTime[], ProcessorTime[]] = [[], []];
    for (const { pairs } of fleets) await together(pairs, { ...FULL, ms: WARM_UP_MS });
    for (let round = 0; round < ROUNDS; round++)
      for (const n of [0, 1] as const)
        measured[n].push(await countProcessorTime(fleets[n], redises[n], FULL));
    const [one, two] = measured.map(medianTime) as [ProcessorTime, ProcessorTime];
    const cost = sumOf(two) / sumOf(one);
    const verdict = cost <= COST_MAX ? "met" : "MISSED";
    const cores = cpus().length;
    const excuse =
      cores < PROCESSES ? `; this machine has ${cores} cores for ${PROCESSES} processes` : "";
    print("\nprocessor time a job, one instance and two");
    print(`  one  ${sumOf(one).toFixed(0)} µs: ${partsOf(one)}; ${one.perSecond.toFixed(0)}/s`);
    print(`  two  ${sumOf(two).toFixed(0)} µs: ${partsOf(two)}; ${two.perSecond.toFixed(0)}/s`);
    print(
      `  two instances: ${cost.toFixed(2)} × the processor time of one; ≤ ${COST_MAX} × ${verdict}`,
    );
    print(`  throughput ${(two.perSecond / one.perSecond).toFixed(2)} × one${excuse}`);
    const bear = (2 * one.us.server) / two.us.server;
    print(`  by processor time two servers bear ${bear.toFixed(2)} × one`);
  } finally {
    await stage.stop();
    await Promise.all([...redises.map((redis) => redis.discard()), postgres.discard()]);
  }
}
