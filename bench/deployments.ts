import { fork } from "node:child_process";
import { type AddressInfo, createServer, connect as dial } from "node:net";
import { setTimeout as wait } from "node:timers/promises";
import { startServer, storeSettings } from "@tenure/testing/fleet/running-server";
import { startTenure } from "@tenure/testing/processes/process";
import { scratchDirectory } from "@tenure/testing/scratch";
import { createDatabase } from "@tenure/testing/stores/database";
import { startPostgres } from "@tenure/testing/stores/postgres";
import pg from "pg";
import type { Bench } from "./bench.ts";
import { type SeedFleet, startSeedFleet } from "./seed-loop.ts";
import { median, type Row, renderTable } from "./table.ts";

/** One question of the bench: so many rows appear, or their owner dies, and so many nodes are there. */
interface Scenario {
  what: string;
  rows: number;
  nodes: number;
  /** The rows are first all owned by one more node, which is then killed. */
  failOver: boolean;
  targetMs: number;
}

const SCENARIOS: readonly Scenario[] = [
  { what: "21 on 2 nodes", rows: 21, nodes: 2, failOver: false, targetMs: 3_000 },
  { what: "100 on 10 nodes", rows: 100, nodes: 10, failOver: false, targetMs: 3_000 },
  { what: "fail-over of 21 to 2", rows: 21, nodes: 2, failOver: true, targetMs: 3_000 },
  { what: "1,000 on 50 nodes", rows: 1_000, nodes: 50, failOver: false, targetMs: 10_000 },
];
const CONFLICTS_PER_CLAIM_MAX = 0.1;
const SPREAD_MAX = 1;
const IDLE_AGENT_MB_MAX = 90;
const IDLE_SECONDS = 20;
/** The peer's longest scenario needs twenty passes of five seconds; twice that is not an answer any more. */
const DEADLINE_MS = 240_000;

export const deployments: Bench = {
  name: "deployments",
  summary: "time until every deployment has its node, beside the loop of the first design",
  async run({ print }) {
    const postgres = await startPostgres();
    try {
      const ours: Converged[] = [];
      for (const scenario of SCENARIOS) ours.push(await convergeOurs(postgres.uri(), scenario));
      // The peer waits most of the time, so its scenarios share the wait.
      const seeds = await Promise.all(
        SCENARIOS.map((scenario) => convergeSeed(postgres.uri(), scenario)),
      );
      const rows = SCENARIOS.flatMap((scenario, at) => rowsOf(scenario, ours[at]!, seeds[at]!));
      print(renderTable(rows, "seed's loop"));
      print("");
      await measurePasses(postgres.uri(), print);
      print("");
      await measureIdleAgent(postgres.uri(), print);
    } finally {
      await postgres.discard();
    }
  },
};

interface Converged {
  tookMs: number;
  /** The fullest node's count less the emptiest one's. */
  spread: number;
  conflictsPerClaim: number;
}

function rowsOf(scenario: Scenario, ours: Converged, seed: Converged): Row[] {
  const { what, targetMs } = scenario;
  return [
    {
      what: `${what}: converged after`,
      ours: seconds(ours.tookMs),
      beside: seconds(seed.tookMs),
      ratio: `${(seed.tookMs / ours.tookMs).toFixed(0)} × sooner`,
      target: verdict(ours.tookMs <= targetMs, `≤ ${seconds(targetMs)}`),
    },
    {
      what: `${what}: spread`,
      ours: String(ours.spread),
      beside: String(seed.spread),
      ratio: "",
      target: verdict(ours.spread <= SPREAD_MAX, `≤ ${SPREAD_MAX}`),
    },
    {
      what: `${what}: conflicts per claim`,
      ours: ours.conflictsPerClaim.toFixed(3),
      beside: seed.conflictsPerClaim.toFixed(3),
      ratio: "",
      target: verdict(
        ours.conflictsPerClaim < CONFLICTS_PER_CLAIM_MAX,
        `< ${CONFLICTS_PER_CLAIM_MAX}`,
      ),
    },
  ];
}

const seconds = (ms: number): string => `${(ms / 1_000).toFixed(2)} s`;
const verdict = (met: boolean, target: string): string => `${target} ${met ? "met" : "MISSED"}`;

async function convergeSeed(adminUri: string, scenario: Scenario): Promise<Converged> {
  const database = await createDatabase(adminUri);
  const client = await connect(database.uri);
  await client.query(`
    create table deployment (id uuid primary key default gen_random_uuid(), address text not null default '',
      enabled boolean not null default true, created_at timestamptz not null default now(),
      updated_at timestamptz not null default now())`);
  const names = Array.from({ length: scenario.nodes }, (_, index) => `node-${index}`);
  const dying = "node-dying";
  const fleet: SeedFleet = startSeedFleet(
    database.uri,
    scenario.failOver ? [...names, dying] : names,
  );
  await client.query("insert into deployment (address) select $2 from generate_series(1, $1)", [
    scenario.rows,
    scenario.failOver ? dying : "",
  ]);
  const startedMs = performance.now();
  if (scenario.failOver) fleet.lose(dying);
  const owners = await untilOwned(client, scenario.rows, (address) => address !== dying);
  const tookMs = performance.now() - startedMs;
  await fleet.stop();
  await client.end();
  await database.drop();
  return {
    tookMs,
    spread: spreadOf(owners, scenario.nodes),
    conflictsPerClaim: fleet.conflicts() / fleet.claims(),
  };
}

async function convergeOurs(adminUri: string, scenario: Scenario): Promise<Converged> {
  const database = await createDatabase(adminUri);
  const server = await startServer({ env: storeSettings({ postgresUri: database.uri }) });
  const client = await connect(database.uri);
  const dying = scenario.failOver ? await startUnits(server.url, 1) : undefined;
  if (dying) {
    await insertRows(client, scenario.rows);
    await untilOwned(client, scenario.rows, () => true);
  }
  const units = await startUnits(server.url, scenario.nodes);
  const before = await claimsOf(server.url);
  const startedMs = performance.now();
  if (dying) dying.kill9();
  else await insertRows(client, scenario.rows);
  const owners = await untilOwned(
    client,
    scenario.rows,
    (address) => !dying?.addresses.includes(address),
  );
  const tookMs = performance.now() - startedMs;
  const after = await claimsOf(server.url);
  units.kill9();
  await client.end();
  await server.kill9();
  await database.drop();
  return {
    tookMs,
    spread: spreadOf(owners, scenario.nodes),
    conflictsPerClaim: (after.conflicts - before.conflicts) / (after.claimed - before.claimed),
  };
}

async function connect(uri: string): Promise<pg.Client> {
  const client = new pg.Client(uri);
  await client.connect();
  return client;
}

const insertRows = (client: pg.Client, count: number) =>
  client.query(
    "insert into deployment (name, command) select 'row-' || n, 'true' from generate_series(1, $1) as n",
    [count],
  );

async function untilOwned(
  client: pg.Client,
  rows: number,
  counts: (address: string) => boolean,
): Promise<Map<string, number>> {
  const deadlineMs = performance.now() + DEADLINE_MS;
  while (performance.now() < deadlineMs) {
    const { rows: owners } = await client.query<{ address: string; count: number }>(
      "select address, count(*)::int from deployment group by address",
    );
    const owned = owners.filter(({ address }) => address !== "" && counts(address));
    const total = owned.reduce((sum, { count }) => sum + count, 0);
    if (total === rows) return new Map(owned.map(({ address, count }) => [address, count]));
    await wait(20);
  }
  throw new Error(`not every row had its node after ${seconds(DEADLINE_MS)}`);
}

function spreadOf(owners: Map<string, number>, nodes: number): number {
  const counts = [...owners.values()];
  const least = counts.length < nodes ? 0 : Math.min(...counts);
  return Math.max(...counts) - least;
}

async function claimsOf(url: string): Promise<{ claimed: number; conflicts: number }> {
  const text = await (await fetch(`${url}/metrics`)).text();
  const count = (result: string) =>
    Number(
      new RegExp(`^tenure_deployment_claims_total\\{result="${result}"\\} (\\d+)`, "m").exec(
        text,
      )?.[1] ?? 0,
    );
  return { claimed: count("claimed"), conflicts: count("conflict") };
}

interface Units {
  addresses: readonly string[];
  /** Processor time of the process that holds them. */
  cpuMs(): Promise<number>;
  kill9(): void;
}

/** Node-units with everything but processes of their own: real keys, sockets, lists and loops, in one process. */
async function startUnits(url: string, count: number): Promise<Units> {
  const program = new URL("./node-units.js", import.meta.url);
  const child = fork(program, [url, String(count), scratchDirectory("units")], {
    stdio: ["ignore", "inherit", "inherit", "ipc"],
  });
  const next = <T>() =>
    new Promise<T>((resolve, reject) => {
      child.once("message", (message) => resolve(message as T));
      child.once("exit", (code) => reject(new Error(`the node-units ended with ${code}`)));
    });
  const addresses = await next<string[]>();
  return {
    addresses,
    async cpuMs() {
      const answer = next<number>();
      child.send("cpu");
      return answer;
    },
    kill9: () => void child.kill("SIGKILL"),
  };
}

/** What an idle pass and a changed row cost one node, as rows and members grow. */
async function measurePasses(adminUri: string, print: (line: string) => void): Promise<void> {
  print(
    `one node-unit's share, over ${IDLE_SECONDS} s: bytes from and to the server, processor time`,
  );
  const sizes = [
    { rows: 100, nodes: 2 },
    { rows: 1_000, nodes: 2 },
    { rows: 10_000, nodes: 2 },
    { rows: 100, nodes: 100 },
    { rows: 100, nodes: 500 },
  ];
  for (const { rows, nodes } of sizes) {
    const database = await createDatabase(adminUri);
    const server = await startServer({ env: storeSettings({ postgresUri: database.uri }) });
    const client = await connect(database.uri);
    const others = await startUnits(server.url, nodes - 1);
    await insertRows(client, rows);
    await untilOwned(client, rows, () => true);
    const meter = await countingProxy(Number(new URL(server.url).port));
    const watched = await startUnits(meter.url, 1);
    await wait(3_000); // its first list, and whatever its arrival makes the others do
    const idle = await share(watched, meter, () => wait(IDLE_SECONDS * 1_000));
    const changed = await share(watched, meter, async () => {
      for (let second = 0; second < IDLE_SECONDS; second++) {
        await client.query(
          "update deployment set env = jsonb_build_object('n', $1::int) where name = 'row-1'",
          [second],
        );
        await wait(1_000);
      }
    });
    print(
      `  ${rows} rows, ${nodes} nodes: nothing changes ${perPass(idle)}; one row a second changes ${perPass(changed)}`,
    );
    watched.kill9();
    others.kill9();
    meter.close();
    await client.end();
    await server.kill9();
    await database.drop();
  }
}

interface Share {
  bytes: number;
  cpuMs: number;
}

const perPass = ({ bytes, cpuMs }: Share): string =>
  `${Math.round(bytes / IDLE_SECONDS)} bytes, ${(cpuMs / IDLE_SECONDS).toFixed(1)} ms a second`;

async function share(
  units: Units,
  meter: { bytes(): number },
  work: () => Promise<unknown>,
): Promise<Share> {
  const [bytes, cpuMs] = [meter.bytes(), await units.cpuMs()];
  await work();
  return { bytes: meter.bytes() - bytes, cpuMs: (await units.cpuMs()) - cpuMs };
}

async function countingProxy(port: number) {
  let bytes = 0;
  const proxy = createServer((near) => {
    const far = dial(port, "127.0.0.1");
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const) {
      from.on("data", (chunk) => {
        bytes += chunk.length;
      });
      from.on("error", () => to.destroy());
      from.pipe(to);
    }
  });
  await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  const { port: here } = proxy.address() as AddressInfo;
  return { url: `http://127.0.0.1:${here}`, bytes: () => bytes, close: () => void proxy.close() };
}

/** The agent as it is shipped, connected, with nothing to run. */
async function measureIdleAgent(adminUri: string, print: (line: string) => void): Promise<void> {
  const database = await createDatabase(adminUri);
  const server = await startServer({ env: storeSettings({ postgresUri: database.uri }) });
  const agent = startTenure(["node", "run"], {
    env: { HOST_URL: server.url, NODE_UNIT_DATA_DIR: scratchDirectory("agent") },
  });
  const samples: number[] = [];
  for (let second = 0; second < IDLE_SECONDS; second++) {
    await wait(1_000);
    samples.push(agent.rssMb());
  }
  const residentMb = median(samples.slice(-5));
  print(
    `idle agent, resident: ${Math.round(residentMb)} MB, ${verdict(residentMb <= IDLE_AGENT_MB_MAX, `≤ ${IDLE_AGENT_MB_MAX} MB`)}`,
  );
  await agent.kill9();
  await server.kill9();
  await database.drop();
}
