import assert from "node:assert";
import { randomUUID } from "node:crypto";
import type { Agent } from "@tenure/agent";
import { createNodeConnection, type NodeConnection } from "@tenure/sdk";
import {
  type AddressChange,
  auditAddresses,
  insertSleepers,
  withDatabase,
} from "@tenure/testing/fleet/deployments";
import { createTestNodeKey, type TestNodeKey } from "@tenure/testing/fleet/node-key";
import {
  type SimulatedUnitOptions,
  startSimulatedUnit,
  startUnit,
} from "@tenure/testing/fleet/node-unit";
import { until } from "@tenure/testing/until";
import type { Client } from "pg";
import { type Instance, startFleet } from "./fleet.ts";
import type { Proof, ProofRun } from "./proof.ts";

const DEADLINE_MS = 120_000;

/** I2: nothing that a node of policy `none` does writes an address, and it holds nobody up. */
export const deploymentsNone: Proof = {
  name: "deployments-none",
  summary:
    "policy none through free rows, losses and late requests: 0 writes of an address, and nobody held up",
  async run({ print }: ProofRun) {
    const fleet = await startFleet("redis");
    const units: Agent[] = [];
    const instance = await fleet.startInstance();
    const start: Start = async (name, config = {}, options = {}) => {
      const unit = await startSimulatedUnit({
        urls: [instance.url],
        name,
        config: { ...QUICK, ...config },
        ...options,
      });
      units.push(unit);
      await until(() => unit.connection.state === "ready", {
        deadlineMs: DEADLINE_MS,
        what: `${name} to be connected`,
      });
      return unit;
    };
    try {
      await withDatabase(fleet.postgres.uri(), async (db) => {
        const none = await start("none", { claim_policy: "none" });
        const writes = await auditAddresses(db);
        await alone(db, none, { writes, print });
        await byHand(instance, db, { writes, print });
        await besideOthers(db, none, { writes, print, start });
        await heldUpByNobody(instance, db, { print, start });
        await besideOneWithoutSamples(db, { print, start });
      });
    } finally {
      await Promise.all(units.map((unit) => unit.stop()));
      await fleet.stop();
    }
  },
};

// Calls must end within less than an interval, also on a machine that is busy with other things.
const QUICK = { scheduler_interval_ms: 2_000 };
type Start = (
  name: string,
  config?: SimulatedUnitOptions["config"],
  options?: Pick<SimulatedUnitOptions, "usage">,
) => Promise<Agent>;
type Writes = () => Promise<AddressChange[]>;
type Print = ProofRun["print"];

/** Free rows, rows of an address that nobody knows, and rows of a node that leaves: nobody else is there. */
async function alone(
  db: Client,
  none: Agent,
  { writes, print }: { writes: Writes; print: Print },
): Promise<void> {
  await insertSleepers(db, { count: 5, prefix: "free" });
  await insertSleepers(db, { count: 5, prefix: "lost", address: "nobody-knows-me" });
  const before = none.counts.passes;
  await until(() => none.counts.passes >= before + 5, {
    deadlineMs: DEADLINE_MS,
    what: "five passes of the node",
  });
  const written = await writes();
  print(`alone with free and lost rows, ${none.counts.passes} passes: ${written.length} writes`);
  assert.deepEqual(written, []);
}

/** Requests that its own loop would never send, also on a connection that was replaced. */
async function byHand(
  { url }: Instance,
  db: Client,
  { writes, print }: { writes: Writes; print: Print },
): Promise<void> {
  const key = createTestNodeKey();
  const bootId = randomUUID();
  const { rows } = await db.query(
    "select id, generation::int from deployment where address = '' limit 5",
  );
  const claim = { candidates: rows as { id: string; generation: number }[] };
  const old = await connect(url, { key, bootId, policy: "deployment_count" });
  const late = old.call("deployment.list", {}).catch(() => {}); // on its way while it is replaced
  const current = await connect(url, { key, bootId, policy: "None" });
  await late;
  const outcomes = await Promise.allSettled([
    old.call("deployment.claim", claim),
    old.call("deployment.release", { addresses: ["nobody-knows-me"] }),
    current.call("deployment.claim", claim),
    current.call("deployment.reserve", claim),
    current.call("deployment.release", { addresses: ["nobody-knows-me"] }),
  ]);
  const codes = outcomes.map((one) => (one.status === "rejected" ? one.reason.code : "done"));
  const written = await writes();
  print(
    `by hand, the first two on its replaced connection: ${codes.join(", ")}; ${written.length} writes`,
  );
  assert.deepEqual(codes.slice(2), Array(3).fill("ERR_POLICY_DISABLED"));
  assert(!codes.includes("done"));
  assert.deepEqual(written, []);
  await Promise.all([old.close(), current.close()]);
}

/** There was something to claim all the time: another node does. */
async function besideOthers(
  db: Client,
  none: Agent,
  { writes, print, start }: { writes: Writes; print: Print; start: Start },
): Promise<void> {
  const other = await start("other");
  await untilOwnedBy(db, [other.address]);
  const written = await writes();
  print(
    `beside a node that claims: ${written.length} writes, ${to(written, none)} of them to the none node`,
  );
  assert.equal(to(written, none), 0);
}

/** Whoever cannot or does not claim must not count as the least loaded. */
async function heldUpByNobody(
  { url }: Instance,
  db: Client,
  { print, start }: { print: Print; start: Start },
): Promise<void> {
  const hung = await startUnit({ name: "hung", urls: [url] });
  const draining = await start("draining");
  await db.query("update node_unit set draining = true where address = $1", [draining.address]);
  const unable = await start("unable", { custom_command: false });
  await hung.freeze();
  await insertSleepers(db, { count: 4, prefix: "late" });
  const startedMs = performance.now();
  const idle = [hung, draining, unable].map(({ address }) => address);
  await until(
    async () => {
      const { rows } = await db.query(
        "select count(*)::int as free from deployment where address = '' or address = any ($1)",
        [idle],
      );
      return rows[0].free === 0;
    },
    { deadlineMs: DEADLINE_MS, what: "rows to be claimed past those who do not" },
  );
  const seconds = ((performance.now() - startedMs) / 1_000).toFixed(1);
  print(
    `beside a hung node, a draining one and one that cannot run it: claimed after ${seconds} s`,
  );
  await hung.kill9();
}

/** Who has told no sample is never the least loaded, and nobody waits for it. Others cannot run these rows. */
async function besideOneWithoutSamples(
  db: Client,
  { print, start }: { print: Print; start: Start },
): Promise<void> {
  const config = { claim_policy: "resource_usage", labels: { kind: "measured" } } as const;
  const sampleless = await start("sampleless", config, { usage: () => undefined });
  const sampled = await start("sampled", config);
  const startedMs = performance.now();
  await db.query(`
    insert into deployment (name, command, selector)
    select 'measured-' || n, 'true', '{"kind": "measured"}' from generate_series(1, 4) as n`);
  const owners = await until(
    async () => {
      const { rows } = await db.query(
        "select address from deployment where name like 'measured-%' and address <> ''",
      );
      return rows.length === 4 && rows.map(({ address }) => address as string);
    },
    { deadlineMs: DEADLINE_MS, what: "rows to be claimed past the one without samples" },
  );
  const seconds = ((performance.now() - startedMs) / 1_000).toFixed(1);
  const own = owners.filter((address) => address === sampled.address).length;
  print(`beside a node without samples: claimed after ${seconds} s, ${own} of 4 by the one with`);
  assert(own > 0);
  assert.equal(owners.filter((address) => address === sampleless.address).length, 4 - own);
}

const to = (written: readonly AddressChange[], { address }: { address: string }): number =>
  written.filter(({ after }) => after === address).length;

async function untilOwnedBy(db: Client, addresses: readonly string[]): Promise<void> {
  const isOwned = async () => {
    const { rows } = await db.query(
      "select count(*)::int as others from deployment where address <> all ($1)",
      [addresses],
    );
    return rows[0].others === 0;
  };
  await until(isOwned, { deadlineMs: DEADLINE_MS, what: "every row to have an owner" });
}

async function connect(
  url: string,
  { key, bootId, policy }: { key: TestNodeKey; bootId: string; policy: string },
): Promise<NodeConnection> {
  const connection = createNodeConnection({
    urls: [url],
    key: { address: key.address, sign: async (bytes) => key.signBytes(bytes) },
    bootId,
    describe: () => ({
      name: "by hand",
      version: "0",
      tags: { node_unit: true },
      claim_policy: policy,
      custom_command: true,
    }),
    backoff: { slowMs: 600_000 },
  });
  connection.start();
  await until(() => connection.registration, { deadlineMs: DEADLINE_MS, what: "a connection" });
  return connection;
}
