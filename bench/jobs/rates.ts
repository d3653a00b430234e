import { findNats } from "@tenure/testing/programs/programs";
import { startPostgres } from "@tenure/testing/stores/postgres";
import { type RedisServer, startRedis } from "@tenure/testing/stores/redis";
import { askRedis } from "@tenure/testing/stores/redis-ask";
import type { BenchRun } from "../bench.ts";
import { median } from "../table.ts";
import { countProcessorTime, type Part, type ProcessorTime, sum, together } from "./count-fleet.ts";
import type { Load, LoadFigures } from "./drive.ts";
import { measureEcho } from "./echo.ts";
import { type Fleet, type Mode, startFleet, usesRedis } from "./fleets.ts";
import { createStage, type Stage } from "./processes.ts";
import { NOT_COMPARABLE, renderLatency, renderThroughput } from "./rates-table.ts";

export const AT_ONCE = 128;
export const ROUNDS = 5;
export const ROUND_MS = 5_000;
/** Until a server that was just started is as fast as it gets; what runs for weeks is not measured in its first seconds. */
export const WARM_UP_MS = 20_000;
const CALM_PER_SECOND = 50;
const CALM_MS = 10_000;
export const FULL = { kind: "closed", atOnce: AT_ONCE, ms: ROUND_MS } as const satisfies Load;

const COMPARED = [
  ...(["bullmq", "jetstreamMemory", "jetstreamFile"] as const),
  ...(["redis", "memory", "roomy"] as const),
] satisfies readonly Mode[];
export type Compared = (typeof COMPARED)[number];
export type ByMode<Figure> = Record<Compared, Figure>;

interface Wanted {
  throughput: boolean;
  latency: boolean;
}

/** Throughput, processor time and latency of all systems, measured in turns in one run. */
export async function showRates({ print, throughput, latency }: BenchRun & Wanted): Promise<void> {
  const [redis, postgres] = await Promise.all([startRedis(), startPostgres()]);
  const stage = createStage();
  try {
    const stores = { postgresUri: postgres.uri(), redisPort: redis.port };
    const fleets = await byMode((mode) => startFleet(stage, mode, stores));
    const full = { redis, fleets, rounds: throughput ? ROUNDS : 1 };
    await byMode((mode) => together(fleets[mode].pairs, { ...FULL, ms: WARM_UP_MS }));
    const rates = await measureFull(full);
    if (throughput) {
      print(renderThroughput(rates, AT_ONCE));
      for (const mode of ["bullmq", "redis"] as const)
        print(`raw limit, Redis, ${mode}: ${await scriptLine(redis, fleets[mode], rates[mode])}`);
      print(await echoLine(stage));
    }
    if (latency) {
      const half = Math.floor(Math.min(...Object.values(rates).map((each) => each.perSecond)) / 2);
      for (const [perSecond, ms] of [
        [CALM_PER_SECOND, CALM_MS],
        [half, ROUND_MS],
      ] as const)
        print(renderLatency(await measureLatency(fleets, { kind: "open", perSecond, ms })));
    }
    print(`\nnats-server ${(await findNats()).version}`);
    for (const line of NOT_COMPARABLE) print(line);
  } finally {
    await stage.stop();
    await Promise.all([redis.discard(), postgres.discard()]);
  }
}

async function byMode<Figure>(of: (mode: Compared) => Promise<Figure>): Promise<ByMode<Figure>> {
  const figures: [Compared, Figure][] = [];
  for (const mode of COMPARED) figures.push([mode, await of(mode)]);
  return Object.fromEntries(figures) as ByMode<Figure>;
}

/** In turns, so that what else the machine does meets all alike. The median of each figure. */
async function measureFull({
  redis,
  fleets,
  rounds,
}: {
  redis: RedisServer;
  fleets: ByMode<Fleet>;
  rounds: number;
}): Promise<ByMode<ProcessorTime>> {
  const measured: ByMode<ProcessorTime>[] = [];
  for (let round = 0; round < rounds; round++)
    measured.push(
      await byMode((mode) =>
        countProcessorTime(fleets[mode], usesRedis(mode) ? redis : undefined, FULL),
      ),
    );
  return byMode(async (mode) => medianTime(measured.map((each) => each[mode])));
}

export function medianTime(all: readonly ProcessorTime[]): ProcessorTime {
  // Of the sums, and the parts of that round: parts of different rounds would not add up.
  const sorted = all.toSorted((a, b) => sumOf(a) - sumOf(b));
  const { us } = sorted[Math.floor(sorted.length / 2)]!;
  return { us, perSecond: median(all.map(({ perSecond }) => perSecond)) };
}

export const sumOf = ({ us }: ProcessorTime): number => sum(Object.values<number>(us));

export const partsOf = ({ us }: ProcessorTime): string =>
  (Object.entries(us) as [Part, number][])
    .map(([part, each]) => `${part} ${each.toFixed(0)}`)
    .join(", ");

async function measureLatency(
  fleets: ByMode<Fleet>,
  load: Extract<Load, { kind: "open" }>,
): Promise<{ perSecond: number; figures: ByMode<LoadFigures> }> {
  const measured: ByMode<LoadFigures>[] = [];
  for (let round = 0; round < ROUNDS; round++)
    measured.push(await byMode((mode) => fleets[mode].pairs[0]!.drive(load)));
  const middle = (mode: Compared, of: (figures: LoadFigures) => number) =>
    median(measured.map((each) => of(each[mode])));
  const figures = await byMode(async (mode) => ({
    ...measured[0]![mode],
    dispatch: {
      p50Ms: middle(mode, ({ dispatch }) => dispatch.p50Ms),
      p99Ms: middle(mode, ({ dispatch }) => dispatch.p99Ms),
    },
    roundTrip: {
      p50Ms: middle(mode, ({ roundTrip }) => roundTrip.p50Ms),
      p99Ms: middle(mode, ({ roundTrip }) => roundTrip.p99Ms),
    },
  }));
  return { perSecond: load.perSecond, figures };
}

/** The limit that no number of instances can pass: Redis has one thread for the scripts of all of them. */
async function scriptLine(
  { port }: RedisServer,
  { pairs }: Fleet,
  { us }: ProcessorTime,
): Promise<string> {
  await askRedis(port, "CONFIG RESETSTAT");
  const { jobs } = await together(pairs, FULL);
  const stats = await askRedis(port, "INFO commandstats");
  const calls = [...stats.matchAll(/^cmdstat_(?:eval|evalsha|fcall):calls=(\d+)/gm)];
  const callsPerJob = sum(calls.map(([, count]) => Number(count))) / jobs;
  return `${callsPerJob.toFixed(2)} script calls a job; at most ${(1e6 / us.store).toFixed(0)}/s`;
}

async function echoLine(stage: Stage): Promise<string> {
  const server = await stage.startProgram("./echo.js", ["serve"]);
  const [, url = ""] = await server.waitForLine(/^listening (\S+)$/);
  const { perSecond, roundTrip } = await measureEcho(url, AT_ONCE, ROUND_MS);
  return `raw limit, wire: a bare WebSocket echo makes ${perSecond.toFixed(0)}/s, p50 ${roundTrip.p50Ms.toFixed(2)} ms`;
}
