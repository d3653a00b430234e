import { startNats } from "@tenure/testing/stores/nats";
import { startPostgres } from "@tenure/testing/stores/postgres";
import { type RedisServer, startRedis } from "@tenure/testing/stores/redis";
import type { BenchRun } from "../bench.ts";
import {
  type Count,
  countAllocated,
  countProcessorTime,
  countRoundTrips,
  countTraffic,
  type Part,
  type RoundTrips,
  sum,
  type Traffic,
  together,
} from "./count-fleet.ts";
import { renderCounts, renderNames } from "./counts-table.ts";
import { isPeer, MODES, type Mode, type Stores, startFleet, usesRedis } from "./fleets.ts";
import { createStage } from "./processes.ts";

export interface Counts {
  /** One job at a time, and `AT_ONCE` of them. */
  single?: Traffic;
  many?: Traffic;
  allocatedBytes?: number;
  processorUs: Record<Part, number>;
  roundTrips?: RoundTrips;
}

export const AT_ONCE = 128;
const JOBS = 10_000;
/** At one at a time there is less to average out, and a job takes longer. */
const SINGLE_SHARE = 0.1;

const COUNTED: readonly Mode[] = ["memory", "redis", "two", "across", "bullmq", "jetstreamFile"];

const METHODS = [
  "two: two instances, a submitter and a worker at each; across: the submitter at one and the worker at the other",
  "frames and writes: of the servers' sockets, in their processes; without pings, and without what they do when idle",
  "Redis commands: INFO commandstats, those inside scripts included; round trips: growth of the latency at one job at a time,",
  "  divided by the time that a proxy before Redis adds to each; bytes allocated: JavaScript heap before and after each collection",
];

/** Prints what a job costs in things that can be counted: they hardly depend on the machine. */
export async function showCounts({ print, jobs = JOBS, mode }: BenchRun): Promise<void> {
  const chosen = COUNTED.filter((each) => mode === undefined || each === mode);
  const counted: [Mode, Counts][] = [];
  for (const each of chosen) counted.push([each, await countMode(each, jobs)]);
  print(renderCounts(counted, AT_ONCE));
  for (const line of METHODS) print(line);
  for (const [mode, { single, many }] of counted) {
    if (single && !isPeer(mode)) print(`\n${renderNames(MODES[mode], single, many)}`);
  }
}

async function countMode(mode: Mode, jobs: number): Promise<Counts> {
  const [postgres, redis] = await Promise.all([startPostgres(), startRedis()]);
  const stage = createStage();
  try {
    const stores = { postgresUri: postgres.uri(), redisPort: redis.port };
    const counts = await countStores(mode, jobs, { stage, stores, redis });
    await stage.stop();
    if (mode === "memory" || mode === "two") return counts;
    return { ...counts, roundTrips: await countDelayed(mode, stores, redis) };
  } finally {
    await stage.stop();
    await Promise.all([redis.discard(), postgres.discard()]);
  }
}

/** On an empty store, with the proxy before it from the start. */
async function countDelayed(mode: Mode, stores: Stores, redis: RedisServer): Promise<RoundTrips> {
  const stage = createStage();
  try {
    if (usesRedis(mode)) await redis.restartEmpty();
    const { port } = usesRedis(mode) ? redis : await stage.keep(startNats());
    const at = (proxied: number) =>
      usesRedis(mode) ? { ...stores, redisPort: proxied } : { ...stores, natsPort: proxied };
    return await countRoundTrips(
      port,
      async (proxied) => (await startFleet(stage, mode, at(proxied))).pairs[0]!,
    );
  } finally {
    await stage.stop();
  }
}

interface Scene {
  stage: ReturnType<typeof createStage>;
  stores: Stores;
  redis: RedisServer;
}

async function countStores(
  mode: Mode,
  jobs: number,
  { stage, stores, redis }: Scene,
): Promise<Counts> {
  const fleet = await startFleet(stage, mode, stores);
  const many: Count = { atOnce: AT_ONCE, jobs };
  const single: Count = { atOnce: 1, jobs: Math.ceil(jobs * SINGLE_SHARE) };
  const usedRedis = usesRedis(mode) ? redis : undefined;
  await together(fleet.pairs, { kind: "count", ...many }); // until the code is compiled
  const full = { kind: "count", ...many } as const;
  const { us: processorUs } = await countProcessorTime(fleet, usedRedis, full);
  const traffic = {
    single: await countTraffic(fleet, usedRedis, single),
    many: await countTraffic(fleet, usedRedis, many),
  };
  if (isPeer(mode)) return { ...traffic, processorUs };
  return { ...traffic, processorUs, allocatedBytes: await countAllocated(fleet, many) };
}

export const framesOf = ({ framesIn, framesOut }: Traffic): number =>
  sum([...Object.values(framesIn), ...Object.values(framesOut)]);
