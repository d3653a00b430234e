import { cpus } from "node:os";
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
import {
  cpuMsOf,
  createDatabase,
  type RunningServer,
  readRedis,
  startPostgres,
  startRedis,
  startServer,
  storeSettings,
} from "./support.ts";
import { median, type Row, renderTable } from "./table.ts";

const AT_ONCE = 128;
const ROUNDS = 3;
const ROUND_MS = 5_000;
const WARM_UP_MS = 3_000;
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
      const throughput = await rounds(ways, FULL);
      print(renderTable(throughputRows(throughput), "BullMQ"));
      const lowest = Math.min(...Object.values(throughput).map(({ perSecond }) => perSecond));
      await showCosts({ ways, server: a, redis, print });
      print(await echoLine(stage));
      await showLatency(ways, { kind: "open", perSecond: CALM_PER_SECOND, ms: CALM_MS }, print);
      const half = Math.floor(lowest / 2);
      await showLatency(ways, { kind: "open", perSecond: half, ms: ROUND_MS }, print);

      // Not earlier: an instance that shares the Redis shares the work, too.
      const b = await stage.keep(startServer({ env: shared }));
      const onB = await stage.startPair(submitterOn(b), workerOn(b));
      const both = await together([ways.redis, onB], { ...FULL, atOnce: AT_ONCE / 2 });
      print(`\n${twoInstances(throughput.redis.perSecond, both)}`);
    } finally {
      await stage.stop();
      await Promise.all([redis.discard(), postgres.discard()]);
    }
  },
};

type Ways = Record<"bullmq" | "redis" | "memory" | "roomy", Pair>;

/** In turns, so that what else the machine does meets all alike. The median by throughput of each. */
async function rounds(ways: Ways, load: Load): Promise<Record<keyof Ways, LoadFigures>> {
  const warmUp: Load = { kind: "closed", atOnce: AT_ONCE, ms: WARM_UP_MS };
  const figures: Record<keyof Ways, LoadFigures[]> = {
    ...{ bullmq: [], redis: [], memory: [], roomy: [] },
  };
  const names = Object.keys(ways) as (keyof Ways)[];
  if (load.kind === "closed") for (const name of names) await ways[name].drive(warmUp);
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

/** What one job costs every process: on a machine with fewer cores than processes, the sum is the throughput. */
async function showCosts({
  ways,
  server,
  redis,
  print,
}: {
  ways: Ways;
  server: RunningServer;
  redis: { pid: number; port: number };
  print: (line: string) => void;
}): Promise<void> {
  print("\nprocessor time a job");
  for (const name of ["bullmq", "redis"] as const) {
    const { worker, submitter, drive } = ways[name];
    const pids = { submitter: submitter.pid, worker: worker.pid, redis: redis.pid };
    const all = name === "redis" ? { ...pids, server: server.pid } : pids;
    await readRedis(redis.port, "CONFIG RESETSTAT");
    const before = Object.values(all).map(cpuMsOf);
    const { jobs } = await drive(FULL);
    const spentUs = Object.values(all).map((pid, n) => ((cpuMsOf(pid) - before[n]!) / jobs) * 1e3);
    const parts = Object.keys(all).map((part, n) => `${part} ${spentUs[n]!.toFixed(0)}`);
    const sum = spentUs.reduce((total, each) => total + each, 0);
    print(`  ${name.padEnd(7)} ${sum.toFixed(0)} µs: ${parts.join(", ")}`);
    const inRedis = spentUs[Object.keys(all).indexOf("redis")]!;
    print(`  ${" ".repeat(7)} ${await scriptLine(redis.port, jobs, inRedis)}`);
  }
}

/** The limit that no number of instances can pass: Redis has one thread for the scripts of all of them. */
async function scriptLine(port: number, jobs: number, usecPerJob: number): Promise<string> {
  const stats = await readRedis(port, "INFO commandstats");
  const calls = [...stats.matchAll(/^cmdstat_(?:eval|evalsha|fcall):calls=(\d+)/gm)];
  const callsPerJob = calls.reduce((total, [, count]) => total + Number(count), 0) / jobs;
  return `raw limit, Redis: ${callsPerJob.toFixed(2)} script calls a job; at most ${(1e6 / usecPerJob).toFixed(0)}/s`;
}

async function echoLine(stage: Stage): Promise<string> {
  const server = await stage.startProgram("./jobs-echo.js", ["serve"]);
  const [, url = ""] = await server.waitForLine(/^listening (\S+)$/);
  const { perSecond, roundTrip } = await measureEcho(url, AT_ONCE, ROUND_MS);
  return `\nraw limit, wire: a bare WebSocket echo makes ${perSecond.toFixed(0)}/s, p50 ${roundTrip.p50Ms.toFixed(2)} ms`;
}

async function together(pairs: Pair[], load: Load): Promise<number> {
  const figures = await Promise.all(pairs.map(({ drive }) => drive(load)));
  return figures.reduce((total, { perSecond }) => total + perSecond, 0);
}

function twoInstances(one: number, two: number): string {
  const cores = cpus().length;
  const ratio = two / one;
  const verdict = ratio >= 1.3 ? "met" : "MISSED";
  // Server, worker and submitter, twice, beside Redis: below that the second instance has no core to run on.
  const excuse = cores < 7 ? `; this machine has ${cores} cores for 7 processes` : "";
  return `two instances: ${two.toFixed(0)}/s, ${ratio.toFixed(2)} × one; ≥ 1.3 × ${verdict}${excuse}`;
}
