import assert from "node:assert";
import { join } from "node:path";
import type { Job } from "@tenure/protocol";
import { type JobResult, Session, type SessionOptions } from "@tenure/sdk";
import { type RunningProcess, startProcess, startTenure } from "@tenure/testing/processes/process";
import { repositoryRoot } from "@tenure/testing/repository";
import { type PostgresServer, startPostgres } from "@tenure/testing/stores/postgres";
import { type RedisServer, startRedis, uniqueKeyPrefix } from "@tenure/testing/stores/redis";
import { type RedisCluster, startRedisCluster } from "@tenure/testing/stores/redis-cluster";
import { until } from "@tenure/testing/until";
import { Cluster, Redis } from "ioredis";
import type { HotKind, Instance } from "./fleet.ts";

/** Stores, instances and workers as processes; sessions are this process's own. `stop` ends all of them. */
export interface JobScene {
  readonly hot: HotKind;
  readonly redis: RedisServer[];
  startInstance(options?: {
    env?: Record<string, string>;
    port?: number;
    /** Export conditions, such as "tenure-test" for failpoints. */
    conditions?: string[];
  }): Promise<Instance>;
  startWorker(options: WorkerSpec): Promise<RunningProcess>;
  openSession(options: SessionOptions): Session;
  /** Slots that the hot state says are taken, of all nodes there ever were. */
  reserved(): Promise<number>;
  /** I6: within one expiry of a slot all are free. */
  untilAllSlotsAreFree(): Promise<void>;
  untilNothingIsUndelivered(): Promise<void>;
  /** No job that somebody has to look after, and no turn that is open. */
  untilNothingIsLeft(): Promise<void>;
  stop(): Promise<void>;
}

export interface WorkerSpec {
  url: string | string[];
  capacity: number;
  pools?: string[];
}

export interface JobSceneOptions {
  /** Per master of the cluster. */
  replicas?: 0 | 1;
  /** Settings of every instance. */
  env?: Record<string, string>;
  /** Lines of redis.conf of the cluster's nodes. */
  conf?: Record<string, string>;
}

export const POOL = "proof";

/** Deadlines that no machine is too slow for: then every job must succeed, and one that does not was lost. */
export const PATIENT = {
  TENURE_JOB_TIMEOUT_PENDING_TIMEOUT_SECONDS: "120",
  TENURE_JOB_TIMEOUT_ACK_TIMEOUT_SECONDS: "60",
  TENURE_JOB_TIMEOUT_RUN_TIMEOUT_SECONDS: "120",
};
const SLOT_EXPIRY_MS = 15_000;

export async function createJobScene(
  hot: HotKind,
  { replicas = 0, env: common = {}, conf = {} }: JobSceneOptions = {},
): Promise<JobScene> {
  const prefix = uniqueKeyPrefix();
  const [postgres, store] = await Promise.all([startPostgres(), startHot(hot, replicas, conf)]);
  const processes: RunningProcess[] = [];
  const sessions: Session[] = [];
  const reserved = () => store.count(`${prefix}:v1:nodes:{node:*}:reserved`, Date.now());

  return {
    hot,
    redis: store.servers,
    async startInstance({ env = {}, port = 0, conditions = [] } = {}) {
      const settings = { ...settingsFor(postgres, prefix), ...store.env, ...common, ...env };
      const args = ["server", "--port", String(port), "--log-level", "error"];
      const running = startTenure(args, { env: settings, dataDir: true, conditions });
      processes.push(running);
      const [, url = ""] = await running.waitForLine(/ready at (\S+)/, 60_000);
      return { ...running, url };
    },
    async startWorker({ url, capacity, pools = [POOL] }) {
      const args = [join(repositoryRoot, "tests/prove/jobs-worker.js")];
      const options = JSON.stringify({ url, pools, capacity });
      const worker = startProcess({ command: process.execPath, args: [...args, options] });
      processes.push(worker);
      await worker.waitForLine(/^connected to/, 60_000);
      return worker;
    },
    openSession(options) {
      const session = new Session(options);
      sessions.push(session);
      return session;
    },
    reserved,
    async untilAllSlotsAreFree() {
      const free = async () => (await reserved()) === 0;
      await until(free, { deadlineMs: 4 * SLOT_EXPIRY_MS, everyMs: 200, what: "all slots free" });
    },
    async untilNothingIsUndelivered() {
      const pattern = `${prefix}:v1:sessions:{session:*}:undelivered`;
      const none = async () => (await store.count(pattern)) === 0;
      await until(none, { deadlineMs: 60_000, everyMs: 200, what: "every result acknowledged" });
    },
    async untilNothingIsLeft() {
      const patterns = [`${prefix}:v1:jobs:due:*`, `${prefix}:v1:turns:open`];
      const none = async () => {
        for (const pattern of patterns) if ((await store.count(pattern)) > 0) return false;
        return true;
      };
      await until(none, { deadlineMs: 120_000, everyMs: 200, what: "nothing left to look after" });
    },
    async stop() {
      await Promise.all(sessions.map((session) => session.detach()));
      await Promise.all(processes.map((each) => each.kill9()));
      await Promise.all([postgres.discard(), store.stop()]);
    },
  };
}

/** What a worker gives back here. */
export interface Answer {
  say: string;
  beganMs: number;
  pid: number;
}

export async function readJob(url: string, id: string): Promise<Job> {
  const response = await fetch(`${url}/api/v1/jobs/${id}`);
  assert.equal(response.status, 200, `job ${id} is not there: ${response.status}`);
  return (await response.json()) as Job;
}

/** I5: it has ended exactly once, and its record says so. */
export async function assertEndedOnce(
  url: string,
  { job_id, outcome }: Pick<JobResult, "job_id" | "outcome">,
): Promise<Job> {
  const job = await readJob(url, job_id);
  const ends = job.timeline.filter(({ state }) => state === "FINISHED").length;
  assert.deepEqual({ ends, outcome: job.outcome }, { ends: 1, outcome }, `job ${job_id}`);
  return job;
}

const settingsFor = (postgres: PostgresServer, prefix: string) => ({
  TENURE_SERVER_POSTGRES_URI: postgres.uri(),
  TENURE_SCHEDULER_PHASE2_REDIS_KEY_PREFIX: prefix,
  TENURE_SCHEDULER_PHASE2_ENABLED: "true",
});

interface Hot {
  env: Record<string, string>;
  servers: RedisServer[];
  /** Members of all sorted sets whose key matches. */
  /** Members of sorted sets; `from`: only those above it. A slot that has run out is free, though nobody has swept it yet. */
  count(pattern: string, from?: number): Promise<number>;
  stop(): Promise<void>;
}

async function startHot(hot: HotKind, replicas: 0 | 1, conf: Record<string, string>): Promise<Hot> {
  if (hot === "redis") {
    const redis = await startRedis();
    const client = new Redis(redis.url, { maxRetriesPerRequest: 1 });
    client.on("error", () => {});
    return {
      env: { TENURE_SCHEDULER_PHASE2_REDIS_URL: redis.url },
      servers: [redis],
      count: (pattern, from) => countMembers([client], pattern, from),
      async stop() {
        client.disconnect();
        await redis.discard();
      },
    };
  }
  const cluster: RedisCluster = await startRedisCluster({ replicas, conf });
  const client = new Cluster(cluster.urls);
  client.on("error", () => {});
  return {
    env: {
      TENURE_SCHEDULER_PHASE2_REDIS_MODE: "cluster",
      TENURE_SCHEDULER_PHASE2_REDIS_CLUSTER_URLS: cluster.urls.join(","),
    },
    servers: cluster.nodes,
    count: (pattern, from) => countMembers(client.nodes("master"), pattern, from),
    async stop() {
      client.disconnect();
      await cluster.stop();
    },
  };
}

async function countMembers(
  clients: Redis[],
  pattern: string,
  from: number | "-inf" = "-inf",
): Promise<number> {
  let members = 0;
  for (const client of clients)
    for await (const keys of client.scanStream({ match: pattern, count: 1_000 }))
      for (const key of keys as string[]) members += await client.zcount(key, from, "+inf");
  return members;
}
