import { randomUUID } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import { JobFailed, type JobResult, Session, Worker } from "@tenure/sdk";
import { FLEET_TOKEN } from "@tenure/testing/fleet/fleet-token";
import { call } from "@tenure/testing/fleet/nonce-fleet";
import type { HistoryRecorder, RecordedEvent } from "@tenure/testing/history";
import { until } from "@tenure/testing/until";
import { Cluster, Redis } from "ioredis";
import {
  checkJobs,
  type JobStores,
  type RunAsk,
  type SlotsSeen,
  type SubmitAsk,
  type Told,
} from "../checkers/jobs.ts";
import { operationsOf } from "../checkers/operations.ts";
import { programSpec } from "../program-spec.ts";
import { type LoadContext, READ_MS, type Scene, type Workload } from "../workload.ts";
import { type Caller, createCaller, runCallers, toSettle } from "./callers.ts";
import { keyOf } from "./node-unit.ts";

const POOL = "faults";
const CALLERS = 10;
const CAPACITY = 3;
const WORKERS = 3;
const WAIT_MS = 4_000;

/** I4, I5, I6: jobs by sessions and by HTTP, the same request at two places at once, on workers that come and go. */
export const jobs: Workload = {
  name: "jobs",
  promises: "I4, I5, I6",
  clients: 1,
  uses: ["hosts", "redis"],
  survivesHotLoss: false,
  parties: [
    {
      role: "worker",
      count: WORKERS,
      uses: ["hosts"],
      awayMaxMs: 8_000,
      readyLine: /^worker/,
      start: (scene) => programSpec("worker", scene),
    },
  ],
  programs: { worker: runWorker },
  async load(context) {
    const { scene, history } = context;
    const session = new Session({ url: scene.urls, token: FLEET_TOKEN });
    void watchSlots(context);
    await runCallers(context, CALLERS, async (caller) => {
      const ask = { request_id: randomUUID(), payload: { n: randomUUID() } };
      // The same request twice in one instant, at two places: one job.
      const ways = caller.chance(0.3) ? ["session", "http"] : [caller.oneOf(["session", "http"])];
      await Promise.all(
        ways.map((via) => submit({ scene, history, session }, caller, { ...ask, via })),
      );
      await caller.pause(5, 60);
    });
  },
  async settle({ scene, history, events, deadlineMs }) {
    const asked = toSettle(
      operationsOf<SubmitAsk>(events, "submit"),
      ({ request_id }) => request_id,
    );
    for (const [index] of scene.urls.entries()) {
      const last = `last-${index}-${scene.seed}`;
      asked.set(last, { request_id: last, via: "http", payload: { n: last } });
    }
    const all = [...asked.values()];
    for (let from = 0; from < all.length; from += 20)
      await Promise.all(
        all
          .slice(from, from + 20)
          .map((ask, index) => settleOne({ scene, history, deadlineMs, place: from + index }, ask)),
      );
    const isAtRest = async () => {
      const { slots, due } = await inUse(scene);
      if (slots + due > 0) throw new Error(`${slots} slots are in use, ${due} jobs are due`);
      return true;
    };
    await until(isAtRest, { deadlineMs, everyMs: 500, what: "no slot in use and nothing due" });
  },
  hazards: {
    jobs: [],
    repeated_requests: [],
    reassigned: ["worker.kill"],
    unknown_outcomes: ["instance.kill", "edge-reset"],
    // Away for longer than two missed pings, and back with a result that nobody waits for.
    stale_runs: ["worker.hosts-partition:13000", "worker.freeze:13000"],
  },
  read,
  check: (events: RecordedEvent[], stores: JobStores) =>
    checkJobs(
      {
        submits: operationsOf<SubmitAsk, Told>(events, "submit"),
        runs: operationsOf<RunAsk>(events, "run"),
        slots: events.filter(({ f }) => f === "slots").map(({ value }) => value as SlotsSeen),
        told: [],
      },
      stores,
    ),
};

interface Desk {
  scene: Scene;
  history: HistoryRecorder;
  session: Session;
}

async function submit(
  { scene, history, session }: Desk,
  caller: Caller,
  ask: SubmitAsk,
): Promise<void> {
  const process = `${caller.name}/${ask.via}`;
  const bySession = async (): Promise<Told> => {
    const job = session.submit({ pool: POOL, requestId: ask.request_id, payload: ask.payload });
    const late = wait(60_000).then(() => Promise.reject(new Error("no result in a minute")));
    return toldOf(await Promise.race([endOf(job), late]));
  };
  const byHttp = async () => orUnknown(await post(caller.oneOf(scene.urls), ask, WAIT_MS));
  const send = ask.via === "session" ? bySession : byHttp;
  await history.run({ process, f: "submit", value: ask }, send).catch(() => caller.pause(20, 200));
}

/** A job that failed has ended too. */
async function endOf(job: Promise<JobResult>): Promise<JobResult> {
  try {
    return await job;
  } catch (error) {
    if (error instanceof JobFailed && error.result) return error.result;
    throw error;
  }
}

const toldOf = ({ job_id, outcome, attempt_id, node_id, body }: JobResult): Told => ({
  job_id,
  outcome,
  attempt_id,
  node_id,
  ...(outcome === "succeeded" && { body: body as NonNullable<Told["body"]> }),
});

/** The job if it has ended, else undefined. */
async function post(url: string, ask: SubmitAsk, waitMs: number): Promise<Told | undefined> {
  const { request_id, payload } = ask;
  const body = { request_id, pool: POOL, payload };
  const answer = await call(url, `/jobs?wait_ms=${waitMs}`, { body, timeoutMs: waitMs + 4_000 });
  if (answer.status >= 400) throw new Error(answer.body?.error?.code ?? `${answer.status}`);
  return answer.status === 200 ? toldOf(answer.body as JobResult) : undefined;
}

function orUnknown(told: Told | undefined): Told {
  if (!told) throw new Error("not ended yet");
  return told;
}

/** Asked again under the same id until it has ended: the same job while its binding lives. */
async function settleOne(
  {
    scene,
    history,
    deadlineMs,
    place,
  }: { scene: Scene; history: HistoryRecorder; deadlineMs: number; place: number },
  ask: SubmitAsk,
): Promise<void> {
  let attempt = place;
  const value = { process: `settle/${place}`, f: "submit", value: { ...ask, via: "settle" } };
  await until(
    () => {
      const url = scene.urls[attempt++ % scene.urls.length]!;
      return history.run(value, async () => orUnknown(await post(url, ask, WAIT_MS)));
    },
    {
      deadlineMs,
      everyMs: 200,
      what: `the end of request ${ask.request_id}`,
    },
  );
}

/** Mostly quick; some slow, some that fail for good, some that ask to be tried elsewhere. */
async function runWorker({ scene, history, quiet, atStop }: LoadContext): Promise<void> {
  const name = `${scene.name}#${scene.start}`;
  const caller = createCaller(name, scene.seed, quiet);
  const key = workerKey(scene.seed, scene.name, scene.start);
  const worker = new Worker<{ n: string }>({
    url: scene.urls,
    token: FLEET_TOKEN,
    pools: [POOL],
    capacity: CAPACITY,
    name,
    key: { address: key.address, sign: async (bytes) => key.signBytes(bytes) },
    async run({ job_id, attempt_id, request_id, payload }) {
      const run = randomUUID();
      const ask: RunAsk = { job_id, attempt_id, request_id, node: name, run };
      return history.run({ process: run, f: "run", value: ask }, async () => {
        await wait(isSlow(payload) ? 2_500 : caller.random.between(2, 150));
        if (caller.chance(0.05))
          throw Object.assign(new Error("elsewhere"), { code: "BUSY", retryable: true });
        if (caller.chance(0.03)) throw new Error("cannot be done");
        return { n: payload.n, run };
      });
    },
  });
  atStop(() => worker.close());
  console.log(`worker ${name}`);
}

/** One job in 16, in each of its attempts: a worker given up with it often reports while the next attempt runs. */
const isSlow = ({ n }: { n: string }): boolean => n.endsWith("0");

/** Looks at the slots of every node again and again: they never exceed its capacity. */
async function watchSlots({ scene, history, quiet }: LoadContext): Promise<void> {
  const redis = openRedis(scene);
  while (!quiet.aborted) {
    await wait(100);
    const seen = await slotsInUse(redis, scene).catch(() => []);
    for (const { node, used } of seen)
      if (used > 0) {
        const value: SlotsSeen = { node, used, capacity: CAPACITY };
        history.record({ process: `${scene.name}/slots`, type: "info", f: "slots", value });
      }
  }
  redis.disconnect();
}

function openRedis({ redis: { mode, urls } }: Scene, commandTimeout = 3_000): Redis | Cluster {
  const limits = { maxRetriesPerRequest: 2, commandTimeout };
  const redis =
    mode === "single" ? new Redis(urls[0]!, limits) : new Cluster(urls, { redisOptions: limits });
  redis.on("error", () => {});
  return redis;
}

/** Of our own workers; by the clock of their Redis. */
async function slotsInUse(redis: Redis | Cluster, scene: Scene) {
  const { prefix } = scene.redis;
  const known = await redis.smembers(`${prefix}:v1:nodes:all`);
  const nodes = known.filter((node) => workersOf(scene).has(node));
  const seen = await Promise.all(
    nodes.map(async (node) => {
      const key = `${prefix}:v1:nodes:{node:${node}}:reserved`;
      const count =
        "local t = redis.call('TIME') return redis.call('ZCOUNT', KEYS[1], '(' .. (t[1] * 1000 + math.floor(t[2] / 1000)), '+inf')";
      return { node, used: Number(await redis.eval(count, 1, key)) };
    }),
  );
  return seen;
}

const workerKey = (seed: number, name: string, start: number) =>
  keyOf(`${seed} jobs ${name} ${start}`);

const STARTS_MAX = 300;
let workers: ReadonlySet<string> | undefined;

/** The addresses our workers may have: another one with every start. */
function workersOf({ seed }: Scene): ReadonlySet<string> {
  workers ??= new Set(
    Array.from({ length: WORKERS }, (_, index) => `worker-${index}`).flatMap((name) =>
      Array.from({ length: STARTS_MAX }, (_, start) => workerKey(seed, name, start).address),
    ),
  );
  return workers;
}

const DUE_SHARDS = 64;

async function read(scene: Scene): Promise<JobStores> {
  return { records: await readRecords(scene.urls[0]!), ...(await inUse(scene)) };
}

async function inUse(scene: Scene): Promise<Pick<JobStores, "slots" | "due">> {
  const redis = openRedis(scene, READ_MS);
  const { prefix } = scene.redis;
  try {
    const due = await Promise.all(
      Array.from({ length: DUE_SHARDS }, (_, shard) =>
        redis.zcard(`${prefix}:v1:jobs:due:${shard}`),
      ),
    );
    const slots = await slotsInUse(redis, scene);
    const sum = (numbers: number[]) => numbers.reduce((total, number) => total + number, 0);
    return { slots: sum(slots.map(({ used }) => used)), due: sum(due) };
  } finally {
    redis.disconnect();
  }
}

/** As the server tells them: how a record is laid out is its own business. */
async function readRecords(url: string): Promise<JobStores["records"]> {
  const records: JobStores["records"] = {};
  let cursor = "";
  do {
    const { body } = await call(url, `/jobs?limit=500&pool=${POOL}${cursor}`, {
      timeoutMs: READ_MS,
    });
    for (const { job_id, request_id, state, attempt_id, outcome = "" } of body.items)
      records[job_id] = { request_id, state, attempt_id, outcome };
    cursor = body.next_cursor ? `&cursor=${encodeURIComponent(body.next_cursor)}` : "";
  } while (cursor !== "");
  return records;
}
