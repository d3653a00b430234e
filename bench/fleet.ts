import { type ChildProcess, fork } from "node:child_process";
import { readFileSync } from "node:fs";
import { setTimeout as wait } from "node:timers/promises";
import {
  type RunningServer,
  startServer,
  storeSettings,
} from "@tenure/testing/fleet/running-server";
import { cpuMsOf } from "@tenure/testing/processes/proc";
import { scratchDirectory } from "@tenure/testing/scratch";
import { createDatabase } from "@tenure/testing/stores/database";
import { startPostgres } from "@tenure/testing/stores/postgres";
import pg from "pg";
import type { Bench, BenchRun } from "./bench.ts";
import type { FleetUnitsCounts, FleetUnitsReport } from "./fleet-units.ts";

const NODES = 300;
const ROWS = 500;
/** Node-units share the machine with the server: more processes than this do not connect them sooner on two cores. */
const PROCESSES = 2;
const CONNECT_LIMIT_MS = 600_000;
const CLAIM_LIMIT_MS = 600_000;
const REST_SECONDS = 20;
const HEALTH_EVERY_MS = 50;

export const fleet: Bench = {
  name: "fleet",
  summary:
    "node-units that connect to one instance, and rows that appear at once (--nodes N --rows M)",
  async run({ print, nodes = NODES, rows = ROWS }) {
    const postgres = await startPostgres();
    const database = await createDatabase(postgres.uri());
    const client = new pg.Client(database.uri);
    await client.connect();
    const server = await startServer({ env: storeSettings({ postgresUri: database.uri }) });
    const health = watchHealth(server);
    try {
      await measure({ server, client, health, nodes, rows, print });
    } finally {
      health.stop();
      await server.kill9();
      await client.end();
      await database.drop();
      await postgres.discard();
    }
  },
};

interface Scene extends Required<Pick<BenchRun, "nodes" | "rows">> {
  server: RunningServer;
  client: pg.Client;
  health: ReturnType<typeof watchHealth>;
  print: BenchRun["print"];
}

async function measure(scene: Scene): Promise<void> {
  const { server, client, health, nodes, rows, print } = scene;
  const fleetOf = meterOf(scene);
  const units = startUnits(server.url, nodes);
  try {
    await units.prepared(CONNECT_LIMIT_MS);
    print(
      `${nodes} node-units in ${units.processes} processes, all started at once; one instance on Postgres\n` +
        `  ${nodes - 1} of them share in each process, as if on machines of their own: a frame about members that has the same bytes is\n` +
        "  parsed once, and the members at the same change are one map. Keys, sockets, frames, heartbeats, lists and claims are each one's own.\n" +
        "  One more process has one node-unit that shares nothing: `alone`",
    );
    const connecting = await fleetOf(units, () => {
      units.start();
      return units.connected(CONNECT_LIMIT_MS);
    });
    print(`  all connected after ${seconds(connecting.tookMs)}; ${perNode(connecting, nodes)}`);
    const seeing = await fleetOf(units, () => units.seen(CONNECT_LIMIT_MS));
    print(`  all saw the whole fleet ${seconds(seeing.tookMs)} later; ${perNode(seeing, nodes)}`);
    await wait(5_000); // what their arrival makes the others do
    const resting = await fleetOf(units, () => wait(REST_SECONDS * 1_000));
    const share = resting.serverMs / resting.tookMs / (nodes / 1_000);
    print(
      `  at rest: ${(100 * share).toFixed(1)} % of a core per 1,000; ${perNode(resting, nodes)}`,
    );
    if (rows > 0) {
      const claiming = await fleetOf(units, async () => {
        await client.query(
          "insert into deployment (name, command) select 'row-' || n, 'true' from generate_series(1, $1) as n",
          [rows],
        );
        await untilClaimed(client, rows);
      });
      print(
        `  ${rows} rows at once: all claimed after ${seconds(claiming.tookMs)}; ${perNode(claiming, nodes)}`,
      );
    }
    const { rows: brakes } = await client.query("select from tenant_brake");
    const { registered } = await units.counts();
    print(
      `  connections lost meanwhile: ${registered - nodes}; brakes on: ${brakes.length}; health not answered: ${health.failures()}`,
    );
  } finally {
    units.kill9();
  }
}

interface Metered extends FleetUnitsCounts {
  tookMs: number;
  /** The processor time of the process with one node-unit. */
  aloneMs: number;
  serverMs: number;
  statements: number;
  rowsRead: number;
  peakMb: number;
  health: string;
}

/** Measures a step by the counters of every process before and after it. */
function meterOf({ server, client, health }: Scene) {
  return async (units: Units, step: () => Promise<unknown>): Promise<Metered> => {
    const before = { ...(await units.counts()), ...(await storeCounts(client)) };
    const { cpuMs: aloneMs } = await units.aloneCounts();
    const serverMs = cpuMsOf(server.pid);
    const startedMs = performance.now();
    health.begin();
    await step();
    const tookMs = performance.now() - startedMs;
    const spentMs = cpuMsOf(server.pid) - serverMs;
    const answered = health.end();
    const alone = await units.aloneCounts();
    const after = { ...(await units.counts()), ...(await storeCounts(client)) };
    return {
      tookMs,
      aloneMs: alone.cpuMs - aloneMs,
      serverMs: spentMs,
      peakMb: peakMb(server.pid),
      health: answered,
      registered: after.registered - before.registered,
      frames: after.frames - before.frames,
      bytes: after.bytes - before.bytes,
      reused: after.reused - before.reused,
      cpuMs: after.cpuMs - before.cpuMs,
      statements: after.statements - before.statements,
      rowsRead: after.rowsRead - before.rowsRead,
    };
  };
}

function perNode(metered: Metered, nodes: number): string {
  const { serverMs, cpuMs, aloneMs, statements, rowsRead, frames, bytes, reused } = metered;
  const { health, peakMb: peak } = metered;
  const each = (value: number, digits = 1) => (value / nodes).toFixed(digits);
  return [
    `per node: server ${each(serverMs)} ms, itself ${each(cpuMs)} ms (alone ${aloneMs.toFixed(1)} ms), ${each(statements)} transactions,`,
    `${each(rowsRead, 0)} rows of node_unit read, ${each(frames, 0)} frames (${each(reused, 0)} parsed already), ${each(bytes / 1_024)} kB;`,
    `health ${health}; server peaked at ${Math.round(peak)} MB`,
  ].join(" ");
}

const seconds = (ms: number): string => `${(ms / 1_000).toFixed(1)} s`;

/** The most memory that a process ever had resident. */
function peakMb(pid: number): number {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  return Number(/^VmHWM:\s+(\d+) kB/m.exec(status)?.[1]) / 1_024;
}

/** Transactions, nearly all of one statement, and the rows of `node_unit` that they read. */
async function storeCounts(client: pg.Client): Promise<{ statements: number; rowsRead: number }> {
  await wait(1_200); // backends report once a second
  const { rows } = await client.query<{ statements: string; rows_read: string }>(`
    select xact_commit + xact_rollback as statements,
           (select coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) from pg_stat_user_tables
             where relname = 'node_unit') as rows_read
      from pg_stat_database where datname = current_database()`);
  return { statements: Number(rows[0]!.statements), rowsRead: Number(rows[0]!.rows_read) };
}

async function untilClaimed(client: pg.Client, rows: number): Promise<void> {
  const deadlineMs = performance.now() + CLAIM_LIMIT_MS;
  while (performance.now() < deadlineMs) {
    const { rows: found } = await client.query<{ claimed: number }>(
      "select count(*)::int as claimed from deployment where address <> ''",
    );
    if (found[0]!.claimed === rows) return;
    await wait(50);
  }
  throw new Error(`not every row was claimed after ${seconds(CLAIM_LIMIT_MS)}`);
}

/** Asks for the health again and again, as a load balancer would. */
function watchHealth(server: RunningServer) {
  let tookMs: number[] = [];
  let failures = 0;
  let running = true;
  void (async () => {
    while (running) {
      const startedMs = performance.now();
      await server.get("/health/ready").catch(() => {
        if (running) failures += 1;
      });
      tookMs.push(performance.now() - startedMs);
      await wait(HEALTH_EVERY_MS);
    }
  })();
  return {
    begin() {
      tookMs = [];
    },
    end() {
      const sorted = tookMs.toSorted((a, b) => a - b);
      if (sorted.length === 0) return "not asked";
      const at = (share: number) => sorted[Math.floor(share * (sorted.length - 1))]?.toFixed(0);
      return `p50 ${at(0.5)} ms, p99 ${at(0.99)} ms`;
    },
    failures: () => failures,
    stop() {
      running = false;
    },
  };
}

interface Units {
  processes: number;
  prepared(limitMs: number): Promise<unknown>;
  start(): void;
  connected(limitMs: number): Promise<unknown>;
  seen(limitMs: number): Promise<unknown>;
  counts(): Promise<FleetUnitsCounts>;
  /** Of the process with one node-unit. */
  aloneCounts(): Promise<FleetUnitsCounts>;
  kill9(): void;
}

function startUnits(url: string, nodes: number): Units {
  const program = new URL("./fleet-units.js", import.meta.url);
  const directory = scratchDirectory("fleet");
  const sharing = nodes - 1;
  const processes = Math.min(PROCESSES, sharing);
  const begin = (first: number, count: number, reading: "shared" | "alone") =>
    unitsIn(fork(program, [url, first, count, nodes, directory, reading].map(String)));
  const alone = begin(sharing, 1, "alone");
  const children = Array.from({ length: processes }, (_, index) => {
    const first = Math.floor((index * sharing) / processes);
    return begin(first, Math.floor(((index + 1) * sharing) / processes) - first, "shared");
  });
  children.push(alone);
  const all = (kind: "prepared" | "connected" | "seen") => async (limitMs: number) => {
    const reported = Promise.all(children.map((child) => child.reported(kind)));
    const late = wait(limitMs, "late", { ref: false });
    if ((await Promise.race([reported, late])) === "late")
      throw new Error(`the node-units were not ${kind} after ${seconds(limitMs)}`);
  };
  return {
    processes: children.length,
    prepared: all("prepared"),
    start() {
      for (const child of children) child.start();
    },
    connected: all("connected"),
    seen: all("seen"),
    async counts() {
      const each = await Promise.all(children.map((child) => child.counts()));
      const sum = (name: keyof FleetUnitsCounts) =>
        each.reduce((total, counts) => total + counts[name], 0);
      return {
        ...{ registered: sum("registered"), frames: sum("frames") },
        ...{ bytes: sum("bytes"), reused: sum("reused"), cpuMs: sum("cpuMs") },
      };
    },
    aloneCounts: alone.counts,
    kill9() {
      for (const child of children) child.kill9();
    },
  };
}

function unitsIn(child: ChildProcess) {
  const reports = new Map<FleetUnitsReport["kind"], FleetUnitsReport>();
  const waiting: (() => void)[] = [];
  let isEnded = false;
  const wake = () => {
    for (const resolve of waiting.splice(0)) resolve();
  };
  child.on("message", (message) => {
    const report = message as FleetUnitsReport;
    reports.set(report.kind, report);
    wake();
  });
  child.once("exit", () => {
    isEnded = true;
    wake();
  });
  async function reported(kind: FleetUnitsReport["kind"]): Promise<FleetUnitsReport> {
    for (;;) {
      const report = reports.get(kind);
      if (report) return report;
      if (isEnded) throw new Error("a process of node-units ended");
      await new Promise<void>((resolve) => waiting.push(resolve));
    }
  }
  return {
    reported,
    start: () => void child.send("start"),
    async counts(): Promise<FleetUnitsCounts> {
      reports.delete("counts");
      child.send("counts");
      return (await reported("counts")) as { kind: "counts" } & FleetUnitsCounts;
    },
    kill9: () => void child.kill("SIGKILL"),
  };
}
