import { startPostgres } from "@tenure/testing/stores/postgres";
import type { BenchRun } from "../bench.ts";
import { renderColumns } from "../table.ts";
import { countProcessorTime, type ProcessorTime, together } from "./count-fleet.ts";
import { type Fleet, MODES, startFleet } from "./fleets.ts";
import { createStage } from "./processes.ts";
import { AT_ONCE, FULL, medianTime, partsOf, ROUNDS, sumOf, WARM_UP_MS } from "./rates.ts";

const COMPARED = ["memory", "tls"] as const;

/** What TLS costs: the same fleet with and without it, measured in turns. */
export async function showTls({ print }: BenchRun): Promise<void> {
  const postgres = await startPostgres();
  const stage = createStage();
  try {
    const stores = { postgresUri: postgres.uri(), redisPort: 0 };
    const fleets: Fleet[] = [];
    for (const mode of COMPARED) fleets.push(await startFleet(stage, mode, stores));
    for (const { pairs } of fleets) await together(pairs, { ...FULL, ms: WARM_UP_MS });
    const measured: ProcessorTime[][] = fleets.map(() => []);
    for (let round = 0; round < ROUNDS; round++)
      for (const [index, fleet] of fleets.entries())
        measured[index]!.push(await countProcessorTime(fleet, undefined, FULL));
    const medians = measured.map(medianTime);
    const [plain] = medians;
    const rows = medians.map((rate, index) => [
      MODES[COMPARED[index]!],
      `${rate.perSecond.toFixed(0)}/s`,
      `${(rate.perSecond / plain!.perSecond).toFixed(2)} ×`,
      `${sumOf(rate).toFixed(0)} (${partsOf(rate)})`,
    ]);
    const headings = [`${AT_ONCE} at once`, "jobs", "of plain", "µs of processor time per job"];
    print(renderColumns([headings, ...rows]));
  } finally {
    await stage.stop();
    await postgres.discard();
  }
}
