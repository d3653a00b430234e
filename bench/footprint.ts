import { setTimeout as wait } from "node:timers/promises";
import { startServer, storeSettings } from "@tenure/testing/fleet/running-server";
import { startProcess, startTenure } from "@tenure/testing/processes/process";
import { scratchDirectory } from "@tenure/testing/scratch";
import { createDatabase } from "@tenure/testing/stores/database";
import { startPostgres } from "@tenure/testing/stores/postgres";
import type { Bench } from "./bench.ts";
import { median, type Row, renderTable } from "./table.ts";

const RESIDENT_MB_MAX = 120;
const EMBEDDED_MB_MAX = 250;
const HELP_MS_MAX = 200;
const HELP_RUNS = 15;
const SERVERS = 5;
const IDLE_SECONDS = 10;

export const footprint: Bench = {
  name: "footprint",
  summary: "what an idle server weighs, and how long `tenure --help` takes",
  async run({ print }) {
    const help = await measureHelp();
    const node = await residentMbOf(startBareNode());
    const servers = await serversOnPostgres();
    const dataDir = scratchDirectory("footprint");
    const firstStart = await residentMbOf(await startServer({ dataDir }));
    const laterStart = await residentMbOf(await startServer({ dataDir }));
    const rows: Row[] = [
      row(
        `idle server on Postgres, resident (${spread(servers)})`,
        "MB",
        median(servers),
        node,
        RESIDENT_MB_MAX,
      ),
      row("same, embedded store, first start", "MB", firstStart, node, EMBEDDED_MB_MAX),
      row("same, embedded store, later start", "MB", laterStart, node, EMBEDDED_MB_MAX),
      row(`tenure --help, median of ${HELP_RUNS}`, "ms", help.ours, help.node, HELP_MS_MAX),
    ];
    print(renderTable(rows, "bare node"));
  },
};

interface Startable {
  pid: number;
  rssMb(): number;
  kill9(): Promise<unknown>;
}

function row(what: string, unit: string, ours: number, bare: number, limit?: number): Row {
  const verdict =
    limit === undefined ? "" : `≤ ${limit} ${unit} ${ours <= limit ? "met" : "MISSED"}`;
  return {
    what,
    ours: `${Math.round(ours)} ${unit}`,
    beside: `${Math.round(bare)} ${unit}`,
    ratio: `${(ours / bare).toFixed(1)} ×`,
    target: verdict,
  };
}

/** Several, since what the collector has left behind differs from one process to the next. */
async function serversOnPostgres(): Promise<number[]> {
  const postgres = await startPostgres();
  try {
    return await Promise.all(
      Array.from({ length: SERVERS }, async () => {
        const { uri: postgresUri } = await createDatabase(postgres.uri());
        return residentMbOf(await startServer({ env: storeSettings({ postgresUri }) }));
      }),
    );
  } finally {
    await postgres.discard();
  }
}

function spread(values: readonly number[]): string {
  const [least, most] = [Math.min(...values), Math.max(...values)].map(Math.round);
  return `median of ${values.length}, ${least}–${most}`;
}

/** Idle for a while first: what start-up needed and the collector has not yet taken is not its weight. */
async function residentMbOf(running: Startable): Promise<number> {
  const samples: number[] = [];
  for (let second = 0; second < IDLE_SECONDS; second++) {
    await wait(1_000);
    samples.push(running.rssMb());
  }
  await running.kill9();
  return median(samples.slice(-5));
}

function startBareNode(): Startable {
  return startProcess({ command: process.execPath, args: ["-e", "setInterval(() => {}, 1e6)"] });
}

/** In turns, so that what else the machine does meets both alike. */
async function measureHelp(): Promise<{ ours: number; node: number }> {
  const ours: number[] = [];
  const node: number[] = [];
  for (let round = 0; round < HELP_RUNS; round++) {
    ours.push(await msToExit(() => startTenure(["--help"])));
    node.push(await msToExit(() => startProcess({ command: process.execPath, args: ["-e", "0"] })));
  }
  return { ours: median(ours), node: median(node) };
}

async function msToExit(start: () => { exited: Promise<unknown> }): Promise<number> {
  const startedMs = performance.now();
  await start().exited;
  return performance.now() - startedMs;
}
