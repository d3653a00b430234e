import { cpus } from "node:os";
import {
  type RunningServer,
  startServer,
  storeSettings,
} from "@tenure/testing/fleet/running-server";
import { cpuMsOf } from "@tenure/testing/processes/proc";
import { createDatabase } from "@tenure/testing/stores/database";
import { startPostgres } from "@tenure/testing/stores/postgres";
import { startRedis } from "@tenure/testing/stores/redis";
import { askRedis as readRedis } from "@tenure/testing/stores/redis-ask";
import type { Bench } from "./bench.ts";
import type { Load, LoadFigures } from "./jobs-drive.ts";
import { measureEcho } from "./jobs-echo.ts";
import {
  CAPACITY,
  createStage,
  type Pair,
  type Stage,
  submitterOn,
  workerOn,
} from "./jobs-processes.ts";
import { median, type Row, renderTable } from "./table.ts";

const AT_ONCE = 128;
const ROUNDS = 5;
const ROUND_MS = 5_000;
/** Until a server that was just started is as fast as it gets; what runs for weeks is not measured in its first seconds. */
const WARM_UP_MS = 20_000;
const CALM_PER_SECOND = 50;
const CALM_MS = 10_000;
/** Of a server as docs/operate.md advises where jobs are many. */
const ROOMY = "--max-semi-space-size=64";
const FULL: Load = { kind: "closed", atOnce: AT_ONCE, ms: ROUND_MS };

export const jobs: Bench = {
  name: "jobs",
  summary: "submit → result through sockets against BullMQ add → completed, on one Redis",
  async run({ print }) {
    const [redis, postgres] = await Promise.all([startRedis(), startPostgres()]);
    const stage = createStage();
    try {
      const { uri: postgresUri } = await createDatabase(postgres.uri());
      const shared = storeSettings({ postgresUri, redisUrl: redis.url });
      const a = await stage.keep(startServer({ env: shared }));
      const startInMemory = async (env: Record<string, string>) => {
        const { uri } = await createDatabase(postgres.uri());
        const stores = storeSettings({ postgresUri: uri });
        return stage.keep(startServer({ env: { ...stores, ...env } }));
      };
      const memory = await startInMemory({});
      const roomy = await startInMemory({ NODE_OPTIONS: ROOMY });
      const bullmq = { system: "bullmq", redisPort: redis.port } as const;
      const ways: Ways = {
        bullmq: await stage.startPair(
          { role: "load", ...bullmq },
          { role: "worker", ...bullmq, capacity: CAPACITY },
        ),
        redis: await stage.startPair(submitterOn(a), workerOn(a)),
        memory: await stage.startPair(submitterOn(memory), workerOn(memory)),
        roomy: await stage.startPair(submitterOn(roomy), workerOn(roomy)),
      };
      for (const way of Object.values(ways)) await way.drive({ ...FULL, ms: WARM_UP_MS });
      const throughput = await rounds(ways, FULL);
      print(renderTable(throughputRows(throughput), "BullMQ"));
      const lowest = Math.min(...Object.values(throughput).map(({ perSecond }) => perSecond));
      print("\nprocessor time a job");
      await showCost("bullmq", { redis, pairs: [ways.bullmq], servers: [], load: FULL, print });
      const inRedisMode = { redis, pairs: [ways.redis], servers: [a], load: FULL, print };
      const one = await showCost("redis", inRedisMode);
      print(await echoLine(stage));
      await showLatency(ways, { kind: "open", perSecond: CALM_PER_SECOND, ms: CALM_MS }, print);
      const half = Math.floor(lowest / 2);
      await showLatency(ways, { kind: "open", perSecond: half, ms: ROUND_MS }, print);

      // Not earlier: an instance that shares the Redis shares the work, too.
      const b = await stage.keep(startServer({ env: shared }));
      const onB = await stage.startPair(submitterOn(b), workerOn(b));
      const halves: Load = { ...FULL, atOnce: AT_ONCE / 2 };
      const pairs = [ways.redis, onB];
      await together(pairs, { ...halves, ms: WARM_UP_MS });
      const both: number[] = [];
      for (let round = 0; round < ROUNDS; round++)
        both.push((await together(pairs, halves)).perSecond);
      print(`\n${twoInstances(throughput.redis.perSecond, median(both))}`);
      const two = await showCost("two", { redis, pairs, servers: [a, b], load: halves, print });
      const threads = (2 * one) / two;
      print(`  ${" ".repeat(7)} by processor time two servers bear ${threads.toFixed(2)} × one`);
    } finally {
      await stage.stop();
      await Promise.all([redis.discard(), postgres.discard()]);
    }
  },
};

type Ways = Record<"bullmq" | "redis" | "memory" | "roomy", Pair>;

/** In turns, so that what else the machine does meets all alike. The median by throughput of each. */
async function rounds(ways: Ways, load: Load): Promise<Record<keyof Ways, LoadFigures>> {
  const figures: Record<keyof Ways, LoadFigures[]> = {
    ...{ bullmq: [], redis: [], memory: [], roomy: [] },
  };
  const names = Object.keys(ways) as (keyof Ways)[];
  for (let round = 0; round < ROUNDS; round++)
    for (const name of names) figures[name].push(await ways[name].drive(load));
  const middle = (each: LoadFigures[]) =>
    each.toSorted((a, b) => a.perSecond - b.perSecond)[Math.floor(each.length / 2)]!;
  const middleBy = (each: LoadFigures[]): LoadFigures => ({
    ...middle(each),
    dispatch: medianSpread(each.map(({ dispatch }) => dispatch)),
    roundTrip: medianSpread(each.map(({ roundTrip }) => roundTrip)),
  });
  return {
    bullmq: middleBy(figures.bullmq),
    redis: middleBy(figures.redis),
    memory: middleBy(figures.memory),
    roomy: middleBy(figures.roomy),
  };
}

const medianSpread = (spreads: LoadFigures["dispatch"][]): LoadFigures["dispatch"] => ({
  p50Ms: median(spreads.map(({ p50Ms }) => p50Ms)),
  p99Ms: median(spreads.map(({ p99Ms }) => p99Ms)),
});

function throughputRows(figures: Record<keyof Ways, LoadFigures>): Row[] {
  const { bullmq, redis, memory, roomy } = figures;
  const row = (what: string, ours: LoadFigures, target: number): Row => {
    const ratio = ours.perSecond / bullmq.perSecond;
    return {
      what: `${what}, ${AT_ONCE} at once`,
      ours: `${ours.perSecond.toFixed(0)}/s`,
      beside: `${bullmq.perSecond.toFixed(0)}/s`,
      ratio: `${ratio.toFixed(2)} ×`,
      target: `≥ ${target} × ${ratio >= target ? "met" : "MISSED"}`,
    };
  };
  return [
    row("Redis mode, one instance", redis, 1),
    row("memory mode", memory, 2),
    row(`memory mode, ${ROOMY}`, roomy, 2),
  ];
}

function latencyRows(figures: Record<keyof Ways, LoadFigures>): Row[] {
  const { bullmq } = figures;
  return (["redis", "memory"] as const).flatMap((name) =>
    (["dispatch", "roundTrip"] as const).flatMap((what) =>
      (["p50Ms", "p99Ms"] as const).map((share): Row => {
        const [ours, theirs] = [figures[name][what][share], bullmq[what][share]];
        const isTarget = what === "dispatch" && share === "p50Ms";
        return {
          what: `${name}: ${what === "dispatch" ? "dispatch" : "round trip"} ${share.slice(0, 3)}`,
          ours: `${ours.toFixed(2)} ms`,
          beside: `${theirs.toFixed(2)} ms`,
          ratio: `${(ours / theirs).toFixed(2)} ×`,
          target: isTarget ? `≤ BullMQ's ${ours <= theirs ? "met" : "MISSED"}` : "",
        };
      }),
    ),
  );
}

async function showLatency(
  ways: Ways,
  load: Extract<Load, { kind: "open" }>,
  print: (line: string) => void,
): Promise<void> {
  print(`\nat ${load.perSecond}/s`);
  print(renderTable(latencyRows(await rounds(ways, load)), "BullMQ"));
}

/**
 * What one job costs every process: on a machine with fewer cores than processes, the sum is the throughput.
 * Returns what it costs the servers.
 */
async function showCost(
  name: string,
  { redis, pairs, servers, load, print }: Costly,
): Promise<number> {
  const processes: Record<string, { pid: number }[]> = {
    submitter: pairs.map(({ submitter }) => submitter),
    worker: pairs.map(({ worker }) => worker),
    redis: [redis],
    server: servers,
  };
  const spentMs = () =>
    Object.values(processes).map((all) => sum(all.map(({ pid }) => cpuMsOf(pid))));
  await readRedis(redis.port, "CONFIG RESETSTAT");
  const before = spentMs();
  const { jobs } = await together(pairs, load);
  const spentUs = spentMs().map((ms, n) => ((ms - before[n]!) / jobs) * 1e3);
  const parts = Object.keys(processes).map((part, n) => `${part} ${spentUs[n]!.toFixed(0)}`);
  print(`  ${name.padEnd(7)} ${sum(spentUs).toFixed(0)} µs: ${parts.join(", ")}`);
  const [, , inRedis, inServers] = spentUs;
  print(`  ${" ".repeat(7)} ${await scriptLine(redis.port, jobs, inRedis!)}`);
  return inServers!;
}

interface Costly {
  redis: { pid: number; port: number };
  pairs: Pair[];
  servers: RunningServer[];
  load: Load;
  print: (line: string) => void;
}

/** The limit that no number of instances can pass: Redis has one thread for the scripts of all of them. */
async function scriptLine(port: number, jobs: number, usecPerJob: number): Promise<string> {
  const stats = await readRedis(port, "INFO commandstats");
  const calls = [...stats.matchAll(/^cmdstat_(?:eval|evalsha|fcall):calls=(\d+)/gm)];
  const callsPerJob = sum(calls.map(([, count]) => Number(count))) / jobs;
  return `raw limit, Redis: ${callsPerJob.toFixed(2)} script calls a job; at most ${(1e6 / usecPerJob).toFixed(0)}/s`;
}

async function echoLine(stage: Stage): Promise<string> {
  const server = await stage.startProgram("./jobs-echo.js", ["serve"]);
  const [, url = ""] = await server.waitForLine(/^listening (\S+)$/);
  const { perSecond, roundTrip } = await measureEcho(url, AT_ONCE, ROUND_MS);
  return `\nraw limit, wire: a bare WebSocket echo makes ${perSecond.toFixed(0)}/s, p50 ${roundTrip.p50Ms.toFixed(2)} ms`;
}

async function together(pairs: Pair[], load: Load): Promise<{ jobs: number; perSecond: number }> {
  const figures = await Promise.all(pairs.map(({ drive }) => drive(load)));
  return {
    jobs: sum(figures.map(({ jobs }) => jobs)),
    perSecond: sum(figures.map(({ perSecond }) => perSecond)),
  };
}

const sum = (values: readonly number[]): number => values.reduce((total, each) => total + each, 0);

function twoInstances(one: number, two: number): string {
  const cores = cpus().length;
  const ratio = two / one;
  const verdict = ratio >= 1.3 ? "met" : "MISSED";
  // Server, worker and submitter, twice, beside Redis: below that the second instance has no core to run on.
  const excuse = cores < 7 ? `; this machine has ${cores} cores for 7 processes` : "";
  return `two instances: ${two.toFixed(0)}/s, ${ratio.toFixed(2)} × one; ≥ 1.3 × ${verdict}${excuse}`;
}
