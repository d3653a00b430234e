import { randomUUID } from "node:crypto";
import { call, startFleet, stopFleet } from "@tenure/testing/fleet/nonce-fleet";
import { createSeeded } from "@tenure/testing/seeded";
import { startPostgres } from "@tenure/testing/stores/postgres";
import pg from "pg";
import type { Bench, BenchRun } from "./bench.ts";

// The built packages, by their files: what is measured here is inside the server and not part of its exports.
const server = (file: string) =>
  new URL(`../../packages/server/dist/${file}`, import.meta.url).href;

type Telemetry = typeof import("../packages/server/src/telemetry.ts");
type Scheduler = typeof import("../packages/server/src/nonces/commit-scheduler.ts");
type NonceStore = typeof import("../packages/server/src/nonces/store/nonce-store.ts");
type Postgres = typeof import("../packages/server/src/store/postgres.ts");
type Migrate = typeof import("../packages/server/src/store/migrate.ts");
type Clock = typeof import("../packages/server/src/kernel/clock.ts");

const CONNECTIONS = 16;
const CALLERS = 128;
const ROUNDS = 5;
const ROUND_MS = 2_000;
/** Until this process is as fast as it gets: the raw way spends its time in Postgres, the others here. */
const WARM_UP_MS = 3_000;
const SIGNERS = 10_000;
const HISTORY = 10_000_000;

interface Figure {
  perSecond: number;
  p50Ms: number;
  p99Ms: number;
}

export const nonces: Bench = {
  name: "nonces",
  summary: "numbers per second: Basic and Worker-Queue against the obvious way and the raw limit",
  async run(run) {
    const postgres = await startPostgres({ settings: { shared_buffers: "256MB" } });
    try {
      await prepare(postgres.uri());
      await compareStores(postgres.uri(), run);
      await compareHttp(postgres.uri(), run);
      await compareHistories(postgres.uri(), run);
    } finally {
      await postgres.discard();
    }
  },
};

async function prepare(uri: string): Promise<void> {
  const { openPostgres } = (await import(server("store/postgres.js"))) as Postgres;
  const { migrate } = (await import(server("store/migrate.js"))) as Migrate;
  const db = openPostgres({ uri, poolMax: 1, statementTimeoutMs: 600_000 });
  await migrate(db);
  await db.script(`
    create table raw_counter (signer text primary key, next bigint not null default 0) with (fillfactor = 50);
    insert into raw_counter (signer) select 's' || k from generate_series(0, ${SIGNERS - 1}) as k;
    analyze raw_counter`);
  await db.close();
}

/** Store calls in this process, every way on the same number of connections, one after another, several rounds. */
async function compareStores(uri: string, { print, seed }: BenchRun): Promise<void> {
  const pool = new pg.Pool({ connectionString: uri, max: CONNECTIONS });
  const basic = await openQueue(uri, false);
  const kept = await openQueue(uri, true);
  for (const signers of [1, SIGNERS]) {
    const ways: [name: string, callers: number, ask: (signer: string) => Promise<unknown>][] = [
      ["raw: update … returning", CONNECTIONS, (signer) => rawUpdate(pool, signer)],
      ["select … for update, then update", CONNECTIONS, (signer) => lockThenUpdate(pool, signer)],
      ["Basic", CALLERS, (signer) => basic.allocate(`b-${signer}`)],
      ["Worker-Queue", CALLERS, (signer) => kept.allocate(`w-${signer}`)],
    ];
    const figures = new Map<string, Figure[]>(ways.map(([name]) => [name, []]));
    for (const [, callers, ask] of ways)
      await measure({ callers, ms: WARM_UP_MS, step: askSome(ask, signers, seed) });
    for (let round = 1; round <= ROUNDS; round++) {
      for (const [name, callers, ask] of ways) {
        const step = askSome(ask, signers, seed + round);
        figures.get(name)!.push(await measure({ callers, ms: ROUND_MS, step }));
      }
    }
    print("");
    print(
      `${signers === 1 ? "one signer" : `${signers} signers`}, ${CONNECTIONS} connections, durable commits, median of ${ROUNDS}`,
    );
    const raw = median(figures.get("raw: update … returning")!).perSecond;
    for (const [name] of ways) print(row(name, median(figures.get(name)!), raw));
    const [way, target] =
      signers === 1 ? (["Worker-Queue", 10] as const) : (["Basic", 0.8] as const);
    const ratio = median(figures.get(way)!).perSecond / raw;
    print(
      `  target: ${way} ≥ ${target} × raw: ${ratio.toFixed(2)} × ${ratio >= target ? "reached" : "NOT reached"}`,
    );
  }
  await Promise.all([pool.end(), basic.close(), kept.close()]);
}

/** Which signer is next comes from the seed, so that every way of a round is asked for the same ones. */
function askSome(
  ask: (signer: string) => Promise<unknown>,
  signers: number,
  seed: number,
): () => Promise<unknown> {
  const { between } = createSeeded(seed);
  return () => ask(`s${Math.floor(between(0, signers))}`);
}

const rawUpdate = (pool: pg.Pool, signer: string) =>
  pool.query({
    name: "raw",
    text: "update raw_counter set next = next + 1 where signer = $1 returning next",
    values: [signer],
  });

async function lockThenUpdate(pool: pg.Pool, signer: string): Promise<void> {
  const client = await pool.connect();
  await client.query("begin");
  const { rows } = await client.query({
    name: "lock",
    text: "select next from raw_counter where signer = $1 for update",
    values: [signer],
  });
  await client.query({
    name: "move",
    text: "update raw_counter set next = $2 where signer = $1",
    values: [signer, Number(rows[0].next) + 1],
  });
  await client.query("commit");
  client.release();
}

async function openQueue(uri: string, keeps: boolean) {
  const { CommitScheduler } = (await import(server("nonces/commit-scheduler.js"))) as Scheduler;
  const { createTelemetry } = (await import(server("telemetry.js"))) as Telemetry;
  const { commitNonces } = (await import(server("nonces/store/nonce-store.js"))) as NonceStore;
  const { openPostgres } = (await import(server("store/postgres.js"))) as Postgres;
  const { systemClock } = (await import(server("kernel/clock.js"))) as Clock;
  const db = openPostgres({ uri, poolMax: CONNECTIONS });
  const rules = { holdTtlMs: 3_600_000, holdExpiry: "quarantine", aheadMax: 1_000 } as const;
  const queue = new CommitScheduler({
    ownerNode: `bench/${keeps}`,
    leaseTtlMs: 10_000,
    queueMax: 2_000,
    rules,
    clock: systemClock,
    commit: (request) => commitNonces(db, { ...request, rules }),
    keeps: () => keeps,
    telemetry: createTelemetry(),
    events: { takenOver() {}, fenced() {} },
  });
  return {
    allocate: (signer: string) =>
      queue.submit(
        signer,
        { kind: "allocate", requestId: randomUUID(), holdIds: [randomUUID()] },
        10_000,
        { tenant: "default", opensIn: "default" },
      ),
    async close() {
      await queue.stop();
      await db.close();
    },
  };
}

/** Through one server of each mode, as an application would ask. Client and server share this machine. */
async function compareHttp(uri: string, { print, seed }: BenchRun): Promise<void> {
  print("");
  print("over HTTP, one server, 64 callers in this process");
  for (const mode of ["basic", "worker_queue"]) {
    const fleet = await startFleet(uri, [{ env: { TENURE_NONCE_MODE: mode } }]);
    for (const signers of [1, SIGNERS]) {
      const ask = async (signer: string) => {
        const body = { request_id: randomUUID() };
        const path = `/signers/${mode}-${signer}/nonces`;
        const { status } = await call(fleet[0]!.url, path, { body });
        if (status !== 200) throw new Error(`answered ${status}`);
      };
      const step = askSome(ask, signers, seed);
      await measure({ callers: 64, ms: WARM_UP_MS, step });
      const figure = await measure({ callers: 64, ms: ROUND_MS, step });
      print(row(`${mode}, ${signers === 1 ? "one signer" : `${signers} signers`}`, figure));
    }
    await stopFleet(fleet);
  }
}

/** A signer that has used up ten million numbers, beside one that has used none. */
async function compareHistories(uri: string, { print }: BenchRun): Promise<void> {
  const client = new pg.Client({ connectionString: uri });
  await client.connect();
  await client.query(`
    insert into signer_nonce_allocation
    select 'old', k, 'CONSUMED', gen_random_uuid(), 1, now(), '0x' || k, null, now(), now()
      from generate_series(0, ${HISTORY - 1}) as k`);
  await client.query(`insert into signer_lease values ('old', '', 1, '-infinity', now(), now())`);
  await client.query(`insert into signer_nonce_state values ('old', ${HISTORY}, 1, now(), now())`);
  await client.query("analyze");
  await client.end();
  const basic = await openQueue(uri, false);
  print("");
  print(`Basic, one caller at a time: a new signer, and one with ${HISTORY} numbers`);
  for (const signer of ["new", "old"])
    await measure({ callers: 1, ms: WARM_UP_MS, step: () => basic.allocate(signer) });
  for (const signer of ["new", "old", "new", "old"])
    print(
      row(signer, await measure({ callers: 1, ms: ROUND_MS, step: () => basic.allocate(signer) })),
    );
  await basic.close();
}

async function measure(options: {
  callers: number;
  ms: number;
  step: () => Promise<unknown>;
}): Promise<Figure> {
  const tookMs: number[] = [];
  const startedMs = performance.now();
  const caller = async () => {
    while (performance.now() - startedMs < options.ms) {
      const sentMs = performance.now();
      await options.step();
      tookMs.push(performance.now() - sentMs);
    }
  };
  await Promise.all(Array.from({ length: options.callers }, caller));
  const seconds = (performance.now() - startedMs) / 1_000;
  tookMs.sort((a, b) => a - b);
  const at = (share: number) => tookMs[Math.floor(tookMs.length * share)] ?? 0;
  return { perSecond: tookMs.length / seconds, p50Ms: at(0.5), p99Ms: at(0.99) };
}

function median(figures: Figure[]): Figure {
  return figures.toSorted((a, b) => a.perSecond - b.perSecond)[Math.floor(figures.length / 2)]!;
}

function row(name: string, { perSecond, p50Ms, p99Ms }: Figure, raw?: number): string {
  const ratio = raw === undefined ? "" : `${(perSecond / raw).toFixed(2).padStart(7)} ×`;
  return `  ${name.padEnd(34)} ${perSecond.toFixed(0).padStart(7)}/s${ratio}   p50 ${p50Ms.toFixed(1)} ms, p99 ${p99Ms.toFixed(1)} ms`;
}
