import { setTimeout as wait } from "node:timers/promises";
import { readCommandCounts, resetCommandCounts } from "@tenure/testing/counting/command-counts";
import { startDelayProxy } from "@tenure/testing/counting/delay-proxy";
import { CLIENTS, type SocketCounts } from "@tenure/testing/counting/socket-counts";
import { cpuMsOf } from "@tenure/testing/processes/proc";
import type { RedisServer } from "@tenure/testing/stores/redis";
import type { Load, LoadFigures } from "./drive.ts";
import type { Fleet } from "./fleets.ts";
import type { Pair } from "./processes.ts";

/** What passed between the processes while a load ran, or per job. */
export interface Traffic {
  framesIn: Record<string, number>;
  framesOut: Record<string, number>;
  clientWrites: number;
  redisWrites: number;
  commands: Record<string, number>;
}

export interface Count {
  atOnce: number;
  jobs: number;
}

export type Part = "server" | "submitter" | "worker" | "store";

/** What a server does without a job, in this time, is taken off. */
const IDLE_MS = 2_000;
/** For what a server still does for the last job after its result was sent. */
const SETTLE_MS = 300;

/** Per job, at this many at once, without what the same fleet does when idle. */
export async function countTraffic(
  fleet: Fleet,
  redis: RedisServer | undefined,
  load: Count,
): Promise<Traffic> {
  const idle = await trafficDuring(fleet, redis, () => wait(IDLE_MS));
  let jobs = 0;
  const busy = await trafficDuring(fleet, redis, async () => {
    ({ jobs } = await together(fleet.pairs, { kind: "count", ...load }));
    await wait(SETTLE_MS);
  });
  const share = busy.tookMs / idle.tookMs;
  const one = (all: number, atRest: number) => Math.max(0, all - atRest * share) / jobs;
  const each = (all: Record<string, number>, atRest: Record<string, number>) =>
    Object.fromEntries(
      Object.entries(all).map(([name, count]) => [name, one(count, atRest[name] ?? 0)]),
    );
  return {
    framesIn: each(busy.framesIn, idle.framesIn),
    framesOut: each(busy.framesOut, idle.framesOut),
    clientWrites: one(busy.clientWrites, idle.clientWrites),
    redisWrites: one(busy.redisWrites, idle.redisWrites),
    commands: each(busy.commands, idle.commands),
  };
}

async function trafficDuring(
  { servers }: Fleet,
  redis: RedisServer | undefined,
  run: () => Promise<unknown>,
): Promise<Traffic & { tookMs: number }> {
  const ends = await Promise.all(servers.map((server) => server.countSockets()));
  if (redis) await resetCommandCounts(redis.port);
  const startedMs = performance.now();
  await run();
  const tookMs = performance.now() - startedMs;
  const commands = redis ? await readCommandCounts(redis.port) : {};
  const counts = await Promise.all(ends.map((end) => end()));
  const all = (pick: (one: SocketCounts) => Record<string, number>) => addUp(counts.map(pick));
  const writes = all((one) => one.writes);
  return {
    framesIn: all((one) => one.framesIn),
    framesOut: all((one) => one.framesOut),
    clientWrites: writes[CLIENTS] ?? 0,
    redisWrites: redis ? (writes[redis.port] ?? 0) : 0,
    commands,
    tookMs,
  };
}

/** Bytes of JavaScript objects that all servers allocate per job. */
export async function countAllocated({ servers, pairs }: Fleet, load: Count): Promise<number> {
  const ends = await Promise.all(servers.map((server) => server.countAllocations()));
  const { jobs } = await together(pairs, { kind: "count", ...load });
  const counts = await Promise.all(ends.map((end) => end()));
  return sum(counts.map(({ allocatedBytes }) => allocatedBytes)) / jobs;
}

export interface ProcessorTime {
  /** Per job, by process. */
  us: Record<Part, number>;
  perSecond: number;
}

/** What a load costs, and how fast it was. `redis` is the store, if the fleet uses one. */
export async function countProcessorTime(
  { servers, peers, pairs }: Fleet,
  redis: { pid: number } | undefined,
  load: Load,
): Promise<ProcessorTime> {
  const processes: Record<Part, { pid: number }[]> = {
    server: [...servers, ...peers],
    submitter: pairs.map(({ submitter }) => submitter),
    worker: pairs.map(({ worker }) => worker),
    store: redis ? [redis] : [],
  };
  const spentMs = (part: Part) => sum(processes[part].map(({ pid }) => cpuMsOf(pid)));
  const parts = Object.keys(processes) as Part[];
  const before = parts.map(spentMs);
  const { jobs, perSecond } = await together(pairs, load);
  const spentUs = parts.map((part, n) => [part, ((spentMs(part) - before[n]!) / jobs) * 1e3]);
  return { perSecond, us: Object.fromEntries(spentUs) as Record<Part, number> };
}

export interface RoundTrips {
  dispatch: number;
  result: number;
}

const ROUND_TRIP_MS = 60;
const DELAYED_JOBS = 7;
/** After each job, so that nothing the servers still do for it delays the next one. */
const APART_MS = 300;

/**
 * Round trips to the store that wait for one another, until the worker has a job and until the submitter has its result:
 * a proxy lengthens each of them by the same time, and the latency grows by that time for every one on the way.
 */
export async function countRoundTrips(
  storePort: number,
  start: (port: number) => Promise<Pair>,
): Promise<RoundTrips> {
  const proxy = await startDelayProxy(storePort);
  try {
    const { drive } = await start(proxy.port);
    const load: Load = { kind: "count", atOnce: 1, jobs: DELAYED_JOBS, pauseMs: APART_MS };
    await drive({ ...load, jobs: 200, pauseMs: 0 });
    const near = { ...(await drive(load)), roundTripMs: await proxy.measureRoundTrip() };
    proxy.setRoundTrip(ROUND_TRIP_MS);
    await wait(APART_MS);
    const far = { ...(await drive(load)), roundTripMs: await proxy.measureRoundTrip() };
    const trips = (of: (figures: LoadFigures) => number) =>
      (of(far) - of(near)) / (far.roundTripMs - near.roundTripMs);
    return {
      dispatch: trips(({ dispatch }) => dispatch.p50Ms),
      result: trips(({ roundTrip }) => roundTrip.p50Ms),
    };
  } finally {
    proxy.stop();
  }
}

/** The load is shared by the pairs; by fewer of them if there are not that many jobs at once. */
export async function together(
  all: Pair[],
  load: Load,
): Promise<{ jobs: number; perSecond: number }> {
  const pairs = load.kind === "open" ? all : all.slice(0, load.atOnce);
  const share = (number: number) => Math.ceil(number / pairs.length);
  const part: Load =
    load.kind === "open"
      ? { ...load, perSecond: load.perSecond / pairs.length }
      : load.kind === "count"
        ? { ...load, atOnce: share(load.atOnce), jobs: share(load.jobs) }
        : { ...load, atOnce: share(load.atOnce) };
  const figures = await Promise.all(pairs.map(({ drive }) => drive(part)));
  return {
    jobs: sum(figures.map(({ jobs }) => jobs)),
    perSecond: sum(figures.map(({ perSecond }) => perSecond)),
  };
}

export const sum = (values: readonly number[]): number =>
  values.reduce((total, each) => total + each, 0);

function addUp(all: readonly Record<string, number>[]): Record<string, number> {
  const total: Record<string, number> = {};
  for (const one of all)
    for (const [name, count] of Object.entries(one)) total[name] = (total[name] ?? 0) + count;
  return total;
}
