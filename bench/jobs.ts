import { cpus } from "node:os";
import { fileURLToPath } from "node:url";
import type { Bench } from "./bench.ts";
import type { Load, LoadFigures } from "./jobs-drive.ts";
import { measureEcho } from "./jobs-echo.ts";
import type { Role } from "./jobs-role.ts";
import {
  createDatabase,
  type RunningProcess,
  type RunningServer,
  readRedis,
  scratchDirectory,
  startPostgres,
  startProcess,
  startRedis,
  startServer,
  storeSettings,
} from "./support.ts";
import { median, type Row, renderTable } from "./table.ts";

const AT_ONCE = 128;
const CAPACITY = 128;
const SESSIONS = 4;
const ROUNDS = 3;
const ROUND_MS = 5_000;
const WARM_UP_MS = 3_000;
const CALM_PER_SECOND = 50;
const CALM_MS = 10_000;
const FLAT_JOBS = 1_000_000;
const FLAT_RETENTION_SECONDS = 5;

export const jobs: Bench = {
  name: "jobs",
  summary: "submit → result through sockets against BullMQ add → completed, on one Redis",
  async run({ print }) {
    const [redis, postgres] = await Promise.all([startRedis(), startPostgres()]);
    const { uri: postgresUri } = await createDatabase(postgres.uri());
    const { uri: memoryUri } = await createDatabase(postgres.uri());
    const shared = storeSettings({ postgresUri, redisUrl: redis.url });
    const started: RunningProcess[] = [];
    const keep = async <T extends RunningProcess>(process: T | Promise<T>): Promise<T> => {
      const running = await process;
      started.push(running);
      return running;
    };
    try {
      const a = await keep(startServer({ env: shared }));
      const b = await keep(startServer({ env: shared }));
      const memory = await keep(startServer({ env: storeSettings({ postgresUri: memoryUri }) }));
      const pair = (load: Role, worker: Role) => startPair(load, worker, keep);
      const ways = {
        bullmq: await pair(
          { role: "load", system: "bullmq", redisPort: redis.port },
          { role: "worker", system: "bullmq", redisPort: redis.port, capacity: CAPACITY },
        ),
        redis: await pair(loadOn(a), workerOn(a)),
        memory: await pair(loadOn(memory), workerOn(memory)),
      };
      // A worker of its own on B would take jobs of A too: it is started when the others are done.
      const throughput = await rounds(ways, { kind: "closed", atOnce: AT_ONCE, ms: ROUND_MS });
      print(renderTable(throughputRows(throughput), "BullMQ"));
      const usage = await usageOf(redis.port, () =>
        ways.redis({ kind: "closed", atOnce: AT_ONCE, ms: ROUND_MS }),
      );
      print(`\n${usage}`);
      print(await echoLine(keep));

      const half = Math.floor(
        Math.min(...Object.values(throughput).map(({ perSecond }) => perSecond)) / 2,
      );
      for (const [perSecond, ms] of [
        [CALM_PER_SECOND, CALM_MS],
        [half, ROUND_MS],
      ] as const) {
        const figures = await rounds(ways, { kind: "open", perSecond, ms });
        print(`\nat ${perSecond}/s`);
        print(renderTable(latencyRows(figures), "BullMQ"));
      }

      await keep(startRole(workerOn(b)));
      const onB = await keep(startLoad(loadOn(b)));
      const closed: Load = { kind: "closed", atOnce: AT_ONCE / 2, ms: ROUND_MS };
      print(
        `\n${twoInstances(
          throughput.redis.perSecond,
          await together([() => ways.redis(closed), () => drive(onB, closed)]),
        )}`,
      );
    } finally {
      await Promise.all(started.map((process) => process.kill9()));
      await Promise.all([redis.discard(), postgres.discard()]);
    }
    await flatMemory(print);
  },
};

type Way = (load: Load) => Promise<LoadFigures>;
type Ways = Record<"bullmq" | "redis" | "memory", Way>;
type Keep = <T extends RunningProcess>(process: T | Promise<T>) => Promise<T>;

const loadOn = ({ url }: RunningServer): Role => ({
  role: "load",
  system: "tenure",
  url,
  sessions: SESSIONS,
});
const workerOn = ({ url }: RunningServer): Role => ({
  role: "worker",
  system: "tenure",
  url,
  capacity: CAPACITY,
});

async function startPair(load: Role, worker: Role, keep: Keep): Promise<Way> {
  await keep(startRole(worker));
  const running = await keep(startLoad(load));
  return (wanted) => drive(running, wanted);
}

const program = (file: string): string => fileURLToPath(new URL(file, import.meta.url));

async function startRole(role: Role): Promise<RunningProcess> {
  const args = [program("./jobs-role.js"), JSON.stringify(role)];
  const running = startProcess({ command: process.execPath, args, hears: true });
  await running.waitForLine(/^ready$/, 30_000);
  return running;
}

interface LoadProcess extends RunningProcess {
  asked: number;
}

const startLoad = async (role: Role): Promise<LoadProcess> => ({
  ...(await startRole(role)),
  asked: 0,
});

async function drive(running: LoadProcess, load: Load): Promise<LoadFigures> {
  running.asked += 1;
  running.tell(JSON.stringify(load));
  const line = new RegExp(`^figures ${running.asked} (.*)$`);
  const [, figures = ""] = await running.waitForLine(line, 3_600_000);
  return JSON.parse(figures) as LoadFigures;
}

/** In turns, so that what else the machine does meets all alike. The median by throughput of each. */
async function rounds(ways: Ways, load: Load): Promise<Record<keyof Ways, LoadFigures>> {
  const warmUp: Load = { kind: "closed", atOnce: AT_ONCE, ms: WARM_UP_MS };
  const figures: Record<keyof Ways, LoadFigures[]> = { bullmq: [], redis: [], memory: [] };
  const names = Object.keys(ways) as (keyof Ways)[];
  if (load.kind === "closed") for (const name of names) await ways[name](warmUp);
  for (let round = 0; round < ROUNDS; round++)
    for (const name of names) figures[name].push(await ways[name](load));
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
  };
}

const medianSpread = (spreads: LoadFigures["dispatch"][]): LoadFigures["dispatch"] => ({
  p50Ms: median(spreads.map(({ p50Ms }) => p50Ms)),
  p99Ms: median(spreads.map(({ p99Ms }) => p99Ms)),
});

function throughputRows({ bullmq, redis, memory }: Record<keyof Ways, LoadFigures>): Row[] {
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
  return [row("Redis mode, one instance", redis, 1), row("memory mode", memory, 2)];
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

/** What Redis itself spent on a job: the limit that no number of instances can pass. */
async function usageOf(port: number, run: () => Promise<LoadFigures>): Promise<string> {
  await readRedis(port, "CONFIG RESETSTAT");
  const { jobs } = await run();
  const stats = (await readRedis(port, "INFO commandstats")).split("\r\n");
  const entries = stats
    .map((line) => /^cmdstat_(\S+):calls=(\d+),usec=(\d+)/.exec(line))
    .filter((match) => match !== null)
    .map(([, name, calls, usec]) => ({ name, calls: Number(calls), usec: Number(usec) }));
  const scripts = entries.filter(({ name }) => /eval/.test(name ?? ""));
  const sum = (list: typeof entries, key: "calls" | "usec") =>
    list.reduce((total, entry) => total + entry[key], 0);
  const usecPerJob = sum(scripts, "usec") / jobs;
  return [
    `raw limit, Redis: ${(sum(scripts, "calls") / jobs).toFixed(2)} script calls a job,`,
    `${usecPerJob.toFixed(0)} µs of Redis' own time: at most ${(1e6 / usecPerJob).toFixed(0)}/s`,
  ].join(" ");
}

async function echoLine(keep: Keep): Promise<string> {
  const args = [program("./jobs-echo.js"), "serve"];
  const server = await keep(startProcess({ command: process.execPath, args }));
  const [, url = ""] = await server.waitForLine(/^listening (\S+)$/);
  const { perSecond, roundTrip } = await measureEcho(url, AT_ONCE, ROUND_MS);
  return `raw limit, wire: a bare WebSocket echo makes ${perSecond.toFixed(0)}/s, p50 ${roundTrip.p50Ms.toFixed(2)} ms`;
}

async function together(runs: (() => Promise<LoadFigures>)[]): Promise<number> {
  const figures = await Promise.all(runs.map((run) => run()));
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

/** Memory mode keeps what has ended for a while; so long and no longer it may grow. */
async function flatMemory(print: (line: string) => void): Promise<void> {
  const env = { TENURE_JOBS_RETENTION_SECONDS: String(FLAT_RETENTION_SECONDS) };
  const server = await startServer({ env, dataDir: scratchDirectory("bench-jobs") });
  const started: RunningProcess[] = [server];
  const keep: Keep = async (process) => {
    started.push(await process);
    return process;
  };
  try {
    const way = await startPair(loadOn(server), workerOn(server), keep);
    const part = FLAT_JOBS / 10;
    const residentMb: number[] = [];
    for (let done = 0; done < FLAT_JOBS; done += part) {
      await way({ kind: "count", atOnce: AT_ONCE, jobs: part });
      residentMb.push(Math.round(server.rssMb()));
    }
    const growth = residentMb.at(-1)! / residentMb[1]!;
    print(
      `\nmemory over ${FLAT_JOBS} jobs, kept ${FLAT_RETENTION_SECONDS} s each: ${residentMb.join(" ")} MB; ` +
        `last to second ${growth.toFixed(2)} × ${growth <= 1.25 ? "flat" : "GROWS"}`,
    );
  } finally {
    await Promise.all(started.map((process) => process.kill9()));
  }
}
