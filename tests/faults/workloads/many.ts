import { setTimeout as wait } from "node:timers/promises";
import { Session, type Turn, Worker } from "@tenure/sdk";
import { FLEET_TOKEN } from "@tenure/testing/fleet/fleet-token";
import { withClient } from "@tenure/testing/fleet/nonce-fleet";
import type { RecordedEvent } from "@tenure/testing/history";
import { askRedis } from "@tenure/testing/stores/redis-ask";
import { until } from "@tenure/testing/until";
import { type Cost, checkCosts } from "../checkers/costs.ts";
import type { LoadContext, Scene, Workload } from "../workload.ts";

const POOL = "many";
const WORKERS = 100;
const CAPACITY = 4;
const TURNS = 1_000;
const AT_ONCE = 25;
const IDLE_S = 4;
const JOBS = 400;
// Postgres publishes its counts with a delay of up to a second.
const PUBLISHED_MS = 1_500;

/** What the dead, many workers and many open turns cost those who work: counted in the stores, not timed. */
export const many: Workload = {
  name: "many",
  promises: "cost in proportion to the work",
  clients: 1,
  uses: [],
  survivesHotLoss: false,
  async load(context) {
    const { scene, history, quiet, atStop } = context;
    const workers = Array.from({ length: WORKERS }, () => startWorker(scene));
    // A session has one open turn at most.
    const sessions = Array.from(
      { length: TURNS },
      () => new Session({ url: scene.urls, token: FLEET_TOKEN }),
    );
    atStop(async () => void (await Promise.all(sessions.map((session) => session.close()))));
    const ready = () => workers.every(({ state }) => state === "ready");
    await until(ready, { deadlineMs: 120_000, everyMs: 100, what: `${WORKERS} workers` });
    const turns = sessions.map((session) => session.turn());
    await speak(context, turns);
    history.record({ process: scene.name, type: "info", f: "turns", value: TURNS });
    for (let from = 0; !quiet.aborted; from += JOBS) {
      await measure(context, { of: "idle", units: IDLE_S }, () => wait(IDLE_S * 1_000));
      if (quiet.aborted) return;
      const some = Array.from({ length: JOBS }, (_, index) => turns[(from + index) % TURNS]!);
      await measure(context, { of: "jobs", units: JOBS }, () => speak(context, some));
    }
  },
  settle: async () => {},
  hazards: { idle_windows: [], job_windows: [], turns: [], dead_nodes: ["dead.nodes"], jobs: [] },
  read: async () => ({}),
  check(events: RecordedEvent[]) {
    const costs = events.filter(({ f }) => f === "cost").map(({ value }) => value as Cost);
    const found = checkCosts(costs, LIMITS);
    const jobs = events.filter(({ f }) => f === "job");
    const failed = jobs.filter(({ type }) => type === "info");
    const first = failed[0]?.value as { error?: string } | undefined;
    return {
      ...found,
      violations: [
        ...found.violations,
        ...(failed.length > 0 ? [`${failed.length} jobs failed: ${first?.error}`] : []),
      ],
      reached: {
        ...found.reached,
        turns: events.filter(({ f }) => f === "turns").length,
        dead_nodes: Math.max(0, ...costs.map(({ dead }) => dead)),
        jobs: jobs.filter(({ type }) => type === "ok").length,
      },
    };
  },
};

/** Several times what two instances need, and far below what one row, turn or worker more would cost each time. */
const LIMITS = {
  // 1,100 connections renew their owner keys every 2.7 s, in scripts of some commands.
  idle: { rows: 100, transactions: 100, commands: 8_000 },
  // The seconds that the jobs take are charged to them.
  jobs: { rows: 50, transactions: 5, commands: 250 },
};

function startWorker({ urls }: Scene): Worker {
  return new Worker({
    url: urls,
    token: FLEET_TOKEN,
    pools: [POOL],
    capacity: CAPACITY,
    run: async () => ({}),
  });
}

/** One job of each turn; the turns stay open. */
async function speak({ scene, history }: LoadContext, turns: readonly Turn[]): Promise<void> {
  const left = [...turns];
  const one = async (place: number) => {
    for (let turn = left.pop(); turn; turn = left.pop()) {
      const own = turn;
      const value = { process: `${scene.name}/${place}`, f: "job", value: {} };
      await history
        .run(value, async () => void (await own.submit({ pool: POOL, payload: {} })))
        .catch(() => {});
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, (_, place) => one(place)));
}

async function measure(
  { scene, history, quiet }: LoadContext,
  { of, units }: Pick<Cost, "of" | "units">,
  work: () => Promise<void>,
): Promise<void> {
  const before = await readCounts(scene);
  await work();
  // What the stores did meanwhile for nothing but time is charged to the work too: limits allow for it.
  const after = await readCounts(scene);
  if (quiet.aborted) return;
  const value: Cost = {
    ...{ of, units, dead: after.dead },
    rows: after.rows - before.rows,
    transactions: after.transactions - before.transactions,
    commands: after.commands - before.commands,
  };
  history.record({ process: scene.name, type: "info", f: "cost", value });
}

async function readCounts({ postgresUri, redis }: Scene) {
  await wait(PUBLISHED_MS);
  const postgres = await withClient(postgresUri, async (client) => {
    const { rows } = await client.query(`
      select (select coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)
                from pg_stat_user_tables where relname = 'node_unit')::float8 as rows,
             (select xact_commit from pg_stat_database
               where datname = current_database())::float8 as transactions,
             (select n_live_tup from pg_stat_user_tables where relname = 'node_unit')::float8 as dead`);
    return rows[0] as { rows: number; transactions: number; dead: number };
  });
  const answers = await Promise.all(
    redis.urls.map((url) => askRedis(Number(new URL(url).port), "INFO stats")),
  );
  const commands = answers.map((text) => Number(/total_commands_processed:(\d+)/.exec(text)?.[1]));
  return { ...postgres, commands: commands.reduce((sum, count) => sum + count, 0) };
}
