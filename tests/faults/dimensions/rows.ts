import { call, withClient } from "@tenure/testing/fleet/nonce-fleet";
import type { HistoryRecorder, RecordedEvent } from "@tenure/testing/history";
import { until } from "@tenure/testing/until";
import type { Client } from "pg";
import type { Dimension, OwnFault } from "../dimension.ts";
import type { Scene, Workload } from "../workload.ts";
import type { World } from "../world.ts";
import {
  type BadRow,
  badRowsOf,
  type Column,
  insertBadRow,
  readBases,
  readColumns,
  removeRow,
} from "./bad-values.ts";
import {
  checkSteady,
  childrenOf,
  expectPeace,
  failOver,
  historyIn,
  keyOfChild,
  loadSteadily,
  recordMet,
  recordProblem,
  SLEEPER,
  steadyUnits,
  urlsOf,
} from "./steady-fleet.ts";

const NAME = "rows";

/** Tables that are tried together. A table that is named nowhere belongs to the last group. */
const GROUPS: Record<string, readonly string[]> = {
  deployments: ["deployment", "deployment_revision", "deployment_status", "deployment_removed"],
  members: ["node_unit", "instance"],
  nonces: ["signer_lease", "signer_nonce_state", "signer_nonce_allocation", "signer_nonce_request"],
  others: [],
};

/** One row each, which is changed and put back. */
const SINGLES: Record<string, string | undefined> = {
  membership_brake: "lost = -1, members = -1, since = 'infinity'",
  // About the whole database: a bad value refuses every number, as it should. The dimension poolers is about that.
  tenure_meta: undefined,
};

const HAZARDS = {
  bad_rows: ["rows.deployments"],
  refused_by_sql: ["rows.nonces"],
  tables: ["rows.others"],
  refused_by_api: ["rows.running"],
  children_kept: ["rows.running"],
  failovers: ["rows.deployments", "rows.members"],
};

const rowsLoad: Workload = {
  name: NAME,
  promises: "R11: a bad row is skipped, and everything else goes on",
  clients: 1,
  uses: ["hosts"],
  survivesHotLoss: false,
  parties: [steadyUnits(NAME)],
  load: loadSteadily,
  async settle() {}, // every fault waits for peace itself
  hazards: HAZARDS,
  async read({ postgresUri }: Scene): Promise<Column[]> {
    return withClient(postgresUri, readColumns);
  },
  check(events: RecordedEvent[], columns: Column[]) {
    const found = checkSteady(events, Object.keys(HAZARDS));
    const { uncovered } = badRowsOf(columns);
    return {
      ...found,
      violations: [
        ...found.violations,
        ...uncovered.map((column) => `no bad value is known for ${column}`),
      ],
    };
  },
};

const group = (fault: string): OwnFault => ({
  card: { role: NAME, fault, count: 1, lastsMs: [4_000, 4_000] },
  act: (world) => tryGroup(world, fault),
});

export const rows: Dimension = {
  name: "rows",
  summary: "rows written by SQL that the API refuses, for each column of each table",
  workloads: [rowsLoad],
  faults: ["rows.deployments", "rows.members", "rows.nonces", "rows.others", "rows.running"],
  ownFaults: [
    ...Object.keys(GROUPS).map(group),
    {
      card: { role: NAME, fault: "running", count: 1, lastsMs: [4_000, 4_000] },
      act: spoilRunning,
    },
  ],
  pace: { gapMs: [300, 600] },
  seconds: 35,
  prepare,
};

/** Something in every table, to copy. */
async function prepare(world: World): Promise<void> {
  const [url = ""] = urlsOf(world);
  const { body } = await call(url, "/deployments", {
    body: { name: "copied", command: SLEEPER, selector: { nowhere: "x" } },
  });
  const path = `/deployments/${body.id}`;
  await call(url, path, { method: "PATCH", body: { command: "true" } });
  await call(url, "/signers/copied/nonces", { body: { request_id: "copied" } });
  await call(url, "/jobs", {
    body: { request_id: "copied", pool: "nowhere", payload: 1, durable: true },
  });
  const { body: gone } = await call(url, "/deployments", {
    body: { name: "gone", command: "true" },
  });
  await call(url, `/deployments/${gone.id}`, { method: "DELETE" });
}

function tablesOf(columns: readonly Column[], fault: string): string[] {
  const named = Object.values(GROUPS).flat();
  const all = [...new Set(columns.map(({ table }) => table))].filter(
    (table) => !(table in SINGLES),
  );
  if (fault === "others") return all.filter((table) => !named.includes(table));
  return GROUPS[fault]!.filter((table) => all.includes(table));
}

/** All bad rows of the group at once; where something breaks, table by table and then column by column, to name it. */
async function tryGroup(world: World, fault: string): Promise<void> {
  const history = historyIn(world, NAME);
  await expectPeace(world, { prefix: NAME, history, after: `before ${fault}` });
  await withClient(world.postgres.uri(), async (client) => {
    const columns = await readColumns(client);
    const tables = tablesOf(columns, fault);
    const desk: Desk = { world, client, columns, history, bases: await basesOf(client, columns) };
    const { rows: bad } = badRowsOf(columns.filter(({ table }) => tables.includes(table)));
    recordMet(history, "tables", tables.length);
    const singles =
      fault === "others" ? Object.keys(SINGLES).filter((table) => SINGLES[table]) : [];
    await withSpoiledSingles(client, singles, async () => {
      const problems = await tryRows(desk, bad, { deep: fault !== "others" && fault !== "nonces" });
      if (problems.length === 0) return;
      await nameCause(desk, bad, problems);
    });
  });
}

interface Desk {
  world: World;
  client: Client;
  columns: Column[];
  history: HistoryRecorder;
  bases: Map<string, Record<string, unknown>>;
}

/** As they are, but for what would make the copy do something by itself. */
async function basesOf(
  client: Client,
  columns: readonly Column[],
): Promise<Map<string, Record<string, unknown>>> {
  const bases = await readBases(client, [...new Set(columns.map(({ table }) => table))]);
  const change = (table: string, changes: object) =>
    bases.set(table, { ...bases.get(table), ...changes });
  change("deployment", {
    ...{ type: "deployment", enabled: true, address: "", command: SLEEPER, moving_to: "" },
    ...{ selector: { nowhere: "x" }, move_state: "", lost_after_ms: 0 },
  });
  // Long gone: a present one without a connection would be lost in a moment, and so many at once pull the brake.
  change("node_unit", {
    ...{ online: false, draining: false },
    ...{ left_at: "2020-01-01", presence_expires_at: "2020-01-01", joined_at: "2020-01-01" },
  });
  // Else each is one more node that runs the deployment.
  change("deployment_status", { state: "stopped" });
  change("instance", { expires_at: "2020-01-01" });
  change("event", { once_key: null });
  change("job_enqueuer", { role_name: "copied", tenant: "default", pools: ["nowhere"] });
  // Empty without a token of an admin.
  change("token", {
    ...{
      id: "00000000-0000-4000-8000-000000000000",
      name: "copied",
      role: "node",
      tenant: "default",
    },
    ...{ scopes: {}, sha256: "0".repeat(64), created_at: "2020-01-01", created_by: "copied" },
    ...{ is_join: false, version: 0 },
  });
  // Every instance opens it at once.
  change("job", { state: "scheduled", is_due: false, run_at: "2020-01-01" });
  // Empty without a browser.
  change("console_session", {
    ...{ id_sha256: "x", token_name: "x", token_sha256: "x" },
    ...{ created_at: "2020-01-01", seen_at: "2020-01-01", expires_at: "2020-01-01" },
  });
  // Empty without a key file. Its value cannot be decrypted.
  change("secret", {
    ...{ tenant: "default", name: "x", version: 1, key_id: "x", sealed: "\\x00" },
    ...{ created_at: "2020-01-01", updated_at: "2020-01-01" },
  });
  // Empty while no brake is on.
  change("tenant_brake", {
    tenant: "nobody",
    since: "2020-01-01",
    changed_at: "2020-01-01",
    lost: 3,
    members: 4,
  });
  return bases;
}

/** What is wrong while these rows are there. They are removed afterwards. */
async function tryRows(
  { world, client, columns, history, bases }: Desk,
  bad: readonly BadRow[],
  { deep }: { deep: boolean },
): Promise<string[]> {
  const empty = bad.find(({ table }) => !bases.has(table));
  if (empty) return [`${empty.table} has no row to copy`];
  const keys: { table: string; key: Record<string, unknown> }[] = [];
  for (const [n, row] of bad.entries()) {
    const base = bases.get(row.table)!;
    const names: Record<string, object> = {
      deployment: { name: `bad-${n}` },
      job: { request_id: `bad-${n}` },
      token: { sha256: n.toString(16).padStart(64, "0") },
    };
    const named = { ...base, ...names[row.table] };
    const key = await insertBadRow(client, columns, { bad: row, base: named, n });
    if (key) keys.push({ table: row.table, key });
  }
  recordMet(history, "bad_rows", keys.length);
  recordMet(history, "refused_by_sql", bad.length - keys.length);
  try {
    const problems = await problemsWith(world, history);
    if (problems.length === 0 && deep)
      await failOver(world, { prefix: NAME, when: "with bad rows" });
    return problems;
  } finally {
    for (const { table, key } of keys) await removeRow(client, table, key);
  }
}

/** The lists that people and programs read, at every instance. */
const LISTS = [
  "/deployments",
  "/nodes",
  "/events",
  "/audit",
  "/secrets",
  "/signers",
  "/jobs",
  "/cluster",
  "/membership",
  "/stats",
];

async function problemsWith(world: World, history: HistoryRecorder): Promise<string[]> {
  const problems: string[] = [];
  const [url = ""] = urlsOf(world);
  const name = `steady-new-${Math.floor(performance.now())}`;
  const made = await call(url, "/deployments", { body: { name, command: SLEEPER } });
  const runs = async () => (await childrenOf(url)).some((child) => child.name === name);
  await until(runs, { deadlineMs: 20_000, everyMs: 100, what: "a new deployment to run" }).catch(
    (error: Error) => problems.push(error.message),
  );
  problems.push(
    ...(await expectPeace(world, { prefix: NAME, history, after: undefined, deadlineMs: 20_000 })),
  );
  for (const [index, each] of urlsOf(world).entries())
    for (const path of LISTS) {
      const { status, body } = await call(each, path).catch((error) => ({
        status: 0,
        body: error,
      }));
      if (status !== 200)
        problems.push(
          `instance ${index}: GET ${path}: ${status} ${JSON.stringify(body).slice(0, 120)}`,
        );
    }
  await call(url, `/deployments/${made.body.id}`, { method: "DELETE" }).catch(() => {});
  return problems;
}

const NAMED_MAX = 3;

async function nameCause(desk: Desk, bad: readonly BadRow[], problems: string[]): Promise<void> {
  const { history } = desk;
  let named = 0;
  const columns = [...new Set(bad.map(({ table, column }) => `${table}.${column}`))];
  for (const table of new Set(bad.map((row) => row.table))) {
    const own = bad.filter((row) => row.table === table);
    if ((await tryRows(desk, own, { deep: false })).length === 0) continue;
    for (const column of columns.filter((each) => each.startsWith(`${table}.`))) {
      const rowsOf = own.filter((row) => `${table}.${row.column}` === column);
      const found = named < NAMED_MAX ? await tryRows(desk, rowsOf, { deep: false }) : [];
      if (found.length === 0) continue;
      named += 1;
      recordProblem(history, `with bad values in ${column}: ${found.slice(0, 3).join("; ")}`);
    }
  }
  if (named === 0) recordProblem(history, `with all bad rows: ${problems.slice(0, 3).join("; ")}`);
}

async function withSpoiledSingles(
  client: Client,
  tables: readonly string[],
  work: () => Promise<void>,
): Promise<void> {
  const before = await readBases(client, tables);
  for (const table of before.keys()) await client.query(`update "${table}" set ${SINGLES[table]}`);
  try {
    await work();
  } finally {
    for (const [table, row] of before) {
      await client.query(`delete from "${table}"`);
      await client.query(
        `insert into "${table}" select * from jsonb_populate_record(null::"${table}", $1)`,
        [JSON.stringify(row)],
      );
    }
  }
}

/**
 * Rows of children that run are given values that the API refuses. The children must go on, and each row is one coded
 * event. Which values the API refuses is asked of the API.
 */
async function spoilRunning(world: World): Promise<void> {
  const history = historyIn(world, NAME);
  await expectPeace(world, { prefix: NAME, history, after: "before rows of running children" });
  const [url = ""] = urlsOf(world);
  await withClient(world.postgres.uri(), async (client) => {
    const columns = (await readColumns(client)).filter(({ table }) => table === "deployment");
    const { body: probe } = await call(url, "/deployments", {
      body: { name: "api-probe", command: SLEEPER, enabled: false },
    });
    const refused: BadRow[] = [];
    for (const row of badRowsOf(columns).rows) {
      const body = { [row.column]: row.value };
      const path = `/deployments/${probe.id}`;
      const { status, body: answer } = await call(url, path, { method: "PATCH", body });
      if (isMerelyLong(row) || NOT_JUDGED.includes(row.column)) continue;
      const isAboutValue = status === 400 && !/unrecognized|unknown/i.test(JSON.stringify(answer));
      if (isAboutValue && (await sqlTakes(client, row))) refused.push(row);
    }
    await call(url, `/deployments/${probe.id}`, { method: "DELETE" });
    recordMet(history, "refused_by_api", refused.length);
    await keepRunning({ world, client, history, url }, refused);
  });
  await expectPeace(world, { prefix: NAME, history, after: "after rows of running children" });
}

/**
 * Another owner is another owner, and a name of any text can be shown. A package is refused by the API without an exact
 * version beside it, and by the node: that is a specification that can be read.
 */
const NOT_JUDGED = ["address", "name", "package_name"];

/** Longer than the API takes, and it can be read and run: such a row is a change like any other. */
const isMerelyLong = ({ value }: BadRow): boolean =>
  typeof value === "string" && value.length > 1_000;

/** And keeps it: a trigger may put something better in its place. */
async function sqlTakes(client: Client, { column, value }: BadRow): Promise<boolean> {
  await client.query("begin");
  try {
    const text = `update deployment set "${column}" = (jsonb_populate_record(null::deployment, $1))."${column}" where name = 'copied' returning to_jsonb("${column}") as kept`;
    const { rows: kept } = await client.query(text, [JSON.stringify({ [column]: value })]);
    return JSON.stringify(kept[0]?.kept) === JSON.stringify(value);
  } catch {
    return false;
  } finally {
    await client.query("rollback");
  }
}

const RUNNING_MAX = 10;

async function keepRunning(
  { world, client, history, url }: Pick<Desk, "world" | "client" | "history"> & { url: string },
  refused: readonly BadRow[],
): Promise<void> {
  // One child per column at least; more values of a column where there is room.
  const first = refused.filter(
    ({ column }, at) => refused.findIndex((r) => r.column === column) === at,
  );
  const chosen = [...first, ...refused.filter((row) => !first.includes(row))].slice(0, RUNNING_MAX);
  const names = chosen.map((_, n) => `steady-spoilt-${n}`);
  for (const name of names) await call(url, "/deployments", { body: { name, command: SLEEPER } });
  const ours = async () => (await childrenOf(url)).filter(({ name }) => names.includes(name));
  const isRunning = async () => (await ours()).length === names.length;
  await until(isRunning, { deadlineMs: 60_000, everyMs: 200, what: "the children to spoil" });
  const before = await ours();
  for (const [n, { column, value }] of chosen.entries())
    await client.query(
      `update deployment set "${column}" = (jsonb_populate_record(null::deployment, $1))."${column}" where name = $2`,
      [JSON.stringify({ [column]: value }), names[n]],
    );
  const problems = await problemsWith(world, history);
  const alive = new Set(before.filter(({ pid }) => isAlive(pid)).map(keyOfChild));
  for (const [n, { column, value }] of chosen.entries()) {
    const child = before.find(({ name }) => name === names[n])!;
    const what = `${column} = ${JSON.stringify(value).slice(0, 40)}`;
    if (alive.has(keyOfChild(child))) recordMet(history, "children_kept");
    else recordProblem(history, `a child was stopped by a bad row: ${what}`);
    const { rows: events } = await client.query<{ n: number }>(
      `select count(*)::int as n from event join deployment on subject = deployment.id::text
        where deployment.name = $1 and code is not null`,
      [names[n]],
    );
    if (events[0]!.n !== 1)
      recordProblem(history, `${events[0]!.n} coded events, not 1, for a running row with ${what}`);
  }
  for (const problem of problems) recordProblem(history, `with bad rows of children: ${problem}`);
  await client.query("delete from deployment where name = any($1)", [names]);
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
