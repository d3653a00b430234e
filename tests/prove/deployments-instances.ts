import assert from "node:assert";
import type { Agent } from "@tenure/agent";
import { auditAddresses, insertSleepers, withDatabase } from "@tenure/testing/fleet/deployments";
import { startSimulatedUnit, startUnit } from "@tenure/testing/fleet/node-unit";
import { until } from "@tenure/testing/until";
import type { Client } from "pg";
import { type Instance, startFleet, startNode, type TestFleet, untilReady } from "./fleet.ts";
import type { Proof, ProofRun } from "./proof.ts";

const DEADLINE_MS = 120_000;

/** Instances come and go under nodes, and nothing that runs is taken from anybody. */
export const deploymentsInstances: Proof = {
  name: "deployments-instances",
  summary:
    "restarts and kill -9 of instances move nothing, a stale view steals nothing, one winner per race",
  async run({ size, print }: ProofRun) {
    const isFull = size === "full";
    await instancesComeAndGo({ nodes: isFull ? 10 : 4, rows: isFull ? 50 : 12, print });
    await instanceAndNodeTogether(print);
    await races({ rounds: isFull ? 1_000 : 100, print });
  },
};

async function instancesComeAndGo({
  nodes,
  rows,
  print,
}: {
  nodes: number;
  rows: number;
  print: ProofRun["print"];
}): Promise<void> {
  const fleet = await startFleet("redis");
  const units: Agent[] = [];
  try {
    let instances = await Promise.all([1, 2, 3].map(() => fleet.startInstance()));
    for (let n = 0; n < nodes; n++) {
      const urls = instances.map(({ url }) => url);
      const own = [...urls.slice(n % 3), ...urls.slice(0, n % 3)];
      units.push(await startSimulatedUnit({ urls: own, name: `unit-${n}` }));
    }
    await withDatabase(fleet.postgres.uri(), async (db) => {
      await insertSleepers(db, { count: rows });
      await untilOwned(db, units);
      const writes = await auditAddresses(db);

      for (const old of [...instances]) {
        await old.stop();
        const fresh = await fleet.startInstance({ port: Number(new URL(old.url).port) });
        instances = instances.map((one) => (one === old ? fresh : one));
        await untilContact(units);
      }
      print(
        `${nodes} nodes, ${rows} rows, rolling restart of 3 instances: ${(await writes()).length} moved`,
      );
      assert.deepEqual(await writes(), []);

      const [victim] = instances.splice(0, 1);
      await victim!.kill9();
      await untilContact(units);
      print(`kill -9 of one instance: ${(await writes()).length} moved`);
      assert.deepEqual(await writes(), []);

      const [instance] = instances as [Instance];
      const released = await releaseWithStaleView(instance, units);
      print(`a stale view that calls ${nodes} live nodes lost: ${released} rows stolen`);
      assert.equal(released, 0);
      assert.deepEqual(await writes(), []);

      await db.query(
        "update deployment set address = 'nobody-knows-me' where id = (select id from deployment limit 1)",
      );
      await untilOwned(db, units);
      print("an address that nobody knows: released and claimed");
    });
  } finally {
    await Promise.all(units.map((unit) => unit.stop()));
    await fleet.stop();
  }
}

/** A node that believes everybody else lost, and says so. */
async function releaseWithStaleView({ url }: Instance, units: readonly Agent[]): Promise<number> {
  const node = startNode([url]);
  await untilReady([node]);
  const addresses = units.map(({ address }) => address);
  const { released } = await node.connection.call("deployment.release", { addresses });
  await node.connection.close();
  return released.length;
}

/** Nobody sees the LEAVE: only presence in Postgres runs out. A short one, so that it does so soon. */
async function instanceAndNodeTogether(print: ProofRun["print"]): Promise<void> {
  const fleet = await startFleet("redis");
  const env = { TENURE_SCHEDULER_PHASE2_NODE_SNAPSHOT_PRESENCE_TTL_SECONDS: "12" };
  const units: Agent[] = [];
  try {
    const [doomed, staying] = await Promise.all([
      fleet.startInstance({ env }),
      fleet.startInstance({ env }),
    ]);
    const victim = await startUnit({ name: "doomed", urls: [doomed.url] });
    await withDatabase(fleet.postgres.uri(), async (db) => {
      await insertSleepers(db, { count: 3 });
      await untilOwned(db, [victim]);
      units.push(await startSimulatedUnit({ urls: [staying.url], name: "heir" }));
      await untilContact(units);
      const killedMs = performance.now();
      await Promise.all([doomed.kill9(), victim.kill9()]);
      await untilOwned(db, units);
      const seconds = ((performance.now() - killedMs) / 1_000).toFixed(1);
      print(
        `kill -9 of instance and node together: 3 rows released and claimed after ${seconds} s (TTL 12 s)`,
      );
    });
  } finally {
    await Promise.all(units.map((unit) => unit.stop()));
    await fleet.stop();
  }
}

/** Two nodes on two instances ask for the same row in the same moment. */
async function races({
  rounds,
  print,
}: {
  rounds: number;
  print: ProofRun["print"];
}): Promise<void> {
  const fleet: TestFleet = await startFleet("redis");
  try {
    const instances = await Promise.all([fleet.startInstance(), fleet.startInstance()]);
    const nodes = instances.map(({ url }) => startNode([url]));
    await untilReady(nodes);
    await withDatabase(fleet.postgres.uri(), async (db) => {
      await insertSleepers(db, { count: 1 });
      const wins = [0, 0];
      let generation = -1;
      for (let round = 0; round < rounds; round++) {
        const { rows } = await db.query(
          "update deployment set address = '', generation = generation + 1 returning id, generation::int",
        );
        const seen = rows[0] as { id: string; generation: number };
        assert(seen.generation > generation, "generations only rise");
        const outcomes = await Promise.all(
          nodes.map(({ connection }) =>
            connection.call("deployment.claim", { candidates: [seen] }).catch((error) => {
              assert.equal(error.code, "ERR_CLAIM_CONFLICT");
              return undefined;
            }),
          ),
        );
        const winners = outcomes.flatMap((term, n) => (term ? [{ n, term }] : []));
        assert.equal(winners.length, 1, `round ${round} has ${winners.length} winners`);
        const [winner] = winners;
        const after = await db.query("select address, generation::int from deployment");
        assert.deepEqual(after.rows, [
          { address: nodes[winner!.n]!.key.address, generation: winner!.term.generation },
        ]);
        wins[winner!.n]! += 1;
        generation = winner!.term.generation;
      }
      print(
        `${rounds} races of two nodes for one row: one owner each time (${wins.join(" : ")}), generations rose`,
      );
    });
    await Promise.all(nodes.map(({ connection }) => connection.close()));
  } finally {
    await fleet.stop();
  }
}

async function untilOwned(db: Client, units: readonly { address: string }[]): Promise<void> {
  const addresses = units.map(({ address }) => address);
  const isOwned = async () => {
    const { rows } = await db.query(
      "select count(*)::int as others from deployment where address <> all ($1)",
      [addresses],
    );
    return rows[0].others === 0;
  };
  await until(isOwned, {
    deadlineMs: DEADLINE_MS,
    everyMs: 20,
    what: "every row to have an owner",
  });
}

/** Every node has been heard again, as of now. */
async function untilContact(units: readonly Agent[]): Promise<void> {
  const sinceMs = performance.now();
  const isHeard = ({ connection }: Agent) => (connection.lastContactMs ?? 0) > sinceMs;
  await until(() => units.every(isHeard), {
    deadlineMs: DEADLINE_MS,
    what: "contact with every node",
  });
}
