import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { DeploymentRow } from "../../../packages/server/src/deployments/deployment-row.ts";
import {
  claimFirstFree,
  releaseLost,
  reserveFirst,
} from "../../../packages/server/src/deployments/store/claim-store.ts";
import {
  dropDeadMoves,
  giveMoveBack,
  markMoveReady,
  markStopped,
} from "../../../packages/server/src/deployments/store/move-store.ts";
import { EVERYTHING } from "../../../packages/server/src/kernel/scope.ts";
import {
  judgeBrakes,
  listBrakes,
  releaseBrake,
} from "../../../packages/server/src/membership/store/brake-store.ts";
import {
  expectedAddresses,
  joinNodeUnit,
  leaveNodeUnit,
  type NodeUnitRow,
  nextEpochs,
  pageOfNodeUnits,
  renewPresence,
  setDraining,
} from "../../../packages/server/src/membership/store/node-unit-store.ts";
import { sql } from "../../../packages/server/src/store/sql.ts";
import { openServer, type TestDb } from "../../../packages/server/testing/databases.ts";
import { type Chance, createChance } from "../chance.ts";
import { type Arbiter, createArbiter } from "./arbiter.ts";

const TTL_MS = 20_000;
const ADDRESSES = ["a", "b", "c", "d", "nobody"];
const STEPS = 400;

let store: TestDb;
beforeAll(async () => {
  store = await openServer();
  // A clock that stands still between two steps, so that both sides see the same moment to the millisecond.
  await store.db.script(`
    create or replace function tenure_now() returns timestamptz language sql volatile
      return timestamptz 'epoch' + (select offset_ms from tenure_test_clock) * interval '1 ms'`);
});
afterAll(() => store.close());

test.each([
  1, 3, 4,
])("I1, I2: the arbiter of the simulation decides as the statements do (seed %i)", async (seed) => {
  await store.db.script(
    `delete from deployment; delete from node_unit;
       update tenure_test_clock set offset_ms = 0;
       delete from tenant_brake; update membership_brake set released_at = '-infinity'`,
  );
  const pair = createPair(store, createChance(seed));
  for (let step = 0; step < STEPS; step++) {
    const { name, ours, theirs } = await pair.step();
    expect(ours, `step ${step}: ${name}`).toEqual(theirs);
    expect(pair.arbiterState(), `after step ${step}: ${name}`).toEqual(await pair.storeState());
  }
  // Had every step been refused, equal answers would mean little.
  expect(pair.claims()).toBeGreaterThan(5);
  expect(pair.releases()).toBeGreaterThan(0);
}, 300_000);

/** The same random steps, in memory and on Postgres. */
function createPair({ db, advance }: TestDb, chance: Chance) {
  let nowMs = 0;
  let claims = 0;
  let releases = 0;
  const arbiter: Arbiter = createArbiter({
    nowMs: () => nowMs,
    brakeTtlMs: TTL_MS,
    onOwner: ({ kind }) => (kind === "claim" ? claims++ : releases++),
  });
  const boots = new Map<string, string>();

  const anyAddress = () => chance.oneOf(ADDRESSES);
  const anyTerm = () => {
    const address = anyAddress();
    const epoch = arbiter.nodes.get(address)?.epoch ?? 0;
    return { address, epoch: chance.isTrue(0.1) ? epoch - 1 : epoch };
  };
  const anyRows = (): DeploymentRow[] => arbiter.deployments.all().filter(() => chance.isTrue(0.5));
  const anyCandidates = () =>
    anyRows().map(({ id, generation }) => ({
      id,
      generation: generation + (chance.isTrue(0.1) ? -1 : 0),
    }));
  const anyStep = () => {
    const rows = arbiter.deployments.all();
    const moving = rows.filter(({ moving_to }) => moving_to !== "");
    const row = chance.oneOf(moving.length > 0 && chance.isTrue(0.8) ? moving : rows);
    const address = chance.oneOf([row.address, row.moving_to, anyAddress()]);
    return { id: row.id, address, generation: row.generation };
  };

  async function both<T>(name: string, ours: () => T, theirs: () => Promise<T>) {
    return { name, ours: ours(), theirs: await theirs() };
  }

  async function join() {
    const address = chance.oneOf(ADDRESSES.slice(0, 4));
    const boot_id = chance.isTrue(0.5) ? (boots.get(address) ?? randomUUID()) : randomUUID();
    const [epoch] = await nextEpochs(db, 1);
    const unit = {
      ...{ address, name: address, version: "1", instance_id: "i", boot_id, epoch: epoch! },
      claim_policy: chance.isTrue(0.15) ? "none" : "deployment_count",
      labels: { zone: chance.oneOf(["x", "y"]) },
      ...{ trusted_package_regexp: ".*", custom_command: true, tags: { node_unit: true } },
    };
    const joined = await both(
      `join ${address}`,
      () => arbiter.nodes.join(unit, TTL_MS) !== undefined,
      async () => (await joinNodeUnit(db, unit, TTL_MS)) !== undefined,
    );
    if (joined.theirs) boots.set(address, boot_id);
    return joined;
  }

  async function insert() {
    const now = new Date(nowMs);
    const row: DeploymentRow = {
      ...{ id: randomUUID(), name: randomUUID(), package_name: "web", package_version: "1.0.0" },
      ...{ command: "", args: [], env: {}, revision: 1, generation: 0 },
      type: chance.isTrue(0.1) ? "daemon" : "deployment",
      address: chance.isTrue(0.2) ? anyAddress() : "",
      enabled: chance.isTrue(0.9),
      selector: chance.isTrue(0.2) ? { zone: "x" } : {},
      lost_after_ms: chance.oneOf([0, 0, 5_000]),
      ...{ moving_to: "", move_state: "", created_at: now, updated_at: now },
    };
    arbiter.deployments.insert(row);
    await db.query(sql`
      insert into deployment (id, name, package_name, package_version, type, address, enabled, selector,
                              lost_after_ms)
      values (${row.id}, ${row.name}, ${row.package_name}, ${row.package_version}, ${row.type}, ${row.address},
              ${row.enabled}, ${JSON.stringify(row.selector)}::jsonb, ${row.lost_after_ms})`);
    return { name: "insert", ours: 0, theirs: 0 };
  }

  const steps: Array<() => Promise<{ name: string; ours: unknown; theirs: unknown }>> = [
    join,
    join,
    join,
    insert,
    insert,
    async () => {
      const ms = Math.floor(chance.between(0, 4_000));
      nowMs += ms;
      await advance(ms);
      return { name: "time", ours: 0, theirs: 0 };
    },
    () => {
      const term = anyTerm();
      return both(
        "renew",
        () => arbiter.nodes.renew(term, TTL_MS),
        async () => (await renewPresence(db, [term], TTL_MS)).has(term.address),
      );
    },
    () => {
      const [term, silently] = [anyTerm(), chance.isTrue(0.5)];
      return both(
        `leave ${term.address}`,
        () => arbiter.nodes.leave(term, silently),
        () => leaveNodeUnit(db, term, silently),
      );
    },
    () => {
      const [address, draining] = [anyAddress(), chance.isTrue(0.3)];
      return both(
        `drain ${address} ${draining}`,
        () => arbiter.nodes.setDraining(address, draining),
        async () => void (await setDraining(db, address, draining)),
      );
    },
    ...Array.from({ length: 4 }, () => () => {
      const [term, candidates] = [anyTerm(), anyCandidates()];
      return both(
        `claim by ${term.address}`,
        () => arbiter.claimFirstFree(term, candidates),
        () => claimFirstFree(db, term, candidates),
      );
    }),
    () => {
      const [term, candidates] = [anyTerm(), anyCandidates()];
      return both(
        `reserve by ${term.address}`,
        () => arbiter.reserveFirst(term, candidates),
        () => reserveFirst(db, term, candidates),
      );
    },
    ...Array.from({ length: 2 }, () => () => {
      const term = anyTerm();
      const lost = ADDRESSES.filter(() => chance.isTrue(0.6));
      const inOrder = (outcome: Awaited<ReturnType<typeof releaseLost>>) =>
        outcome.outcome === "released"
          ? outcome.released.map(({ id, generation }) => `${id} ${generation}`).sort()
          : outcome.why;
      return both(
        `release ${lost} by ${term.address}`,
        () => inOrder(arbiter.releaseLost(term, lost)),
        async () => inOrder(await releaseLost(db, term, lost, { brakeTtlMs: TTL_MS })),
      );
    }),
    ...[
      ["ready", "markMoveReady", markMoveReady] as const,
      ["stopped", "markStopped", markStopped] as const,
      ["given back", "giveMoveBack", giveMoveBack] as const,
    ].map(([name, ours, theirs]) => () => {
      const step = anyStep();
      return both(
        name,
        () => arbiter[ours](step),
        () => theirs(db, step),
      );
    }),
    () =>
      both(
        "dead moves",
        () => arbiter.dropDeadMoves(),
        () => dropDeadMoves(db),
      ),
    () =>
      both(
        "judge the brake",
        () => arbiter.nodes.judgeBrake(TTL_MS),
        async () => void (await judgeBrakes(db, TTL_MS)),
      ),
    () =>
      both(
        "release the brake",
        () => (chance.isTrue(0.2) ? arbiter.nodes.releaseBrake() : undefined),
        async () => undefined,
      ),
    () =>
      both(
        "expected",
        () => arbiter.nodes.expected(TTL_MS).sort(),
        async () => (await expectedAddresses(db, TTL_MS)).sort(),
      ),
  ];

  return {
    claims: () => claims,
    releases: () => releases,
    async step() {
      if (arbiter.deployments.all().length === 0) return insert();
      const wasBraked = arbiter.nodes.brake().active;
      const done = await chance.oneOf(steps)();
      if (wasBraked && !arbiter.nodes.brake().active && done.name === "release the brake")
        await releaseBrake(db);
      return done;
    },
    arbiterState: () => ({
      deployments: arbiter.deployments.all().map(ownerOf).sort(byId),
      nodes: arbiter.nodes.list().map(standingOf),
      brake: arbiter.nodes.brake().active,
    }),
    async storeState() {
      const { rows } = await db.query<DeploymentRow>(sql`select * from deployment`);
      return {
        deployments: rows.map(ownerOf).sort(byId),
        nodes: (await pageOfNodeUnits(db, { scope: EVERYTHING, after: "", limit: 1_000 })).map(
          standingOf,
        ),
        brake: (await listBrakes(db)).length > 0,
      };
    },
  };
}

const ownerOf = ({
  id,
  address,
  generation,
  moving_to,
  move_state,
  updated_at,
}: DeploymentRow) => ({
  ...{ id, address, generation, moving_to, move_state },
  updated_at: updated_at.getTime(),
});
const byId = (a: { id: string }, b: { id: string }) => (a.id < b.id ? -1 : 1);
const standingOf = (unit: NodeUnitRow) => ({
  address: unit.address,
  epoch: unit.epoch,
  present: unit.present,
  draining: unit.draining,
  expires: unit.presence_expires_at.getTime(),
  left: unit.left_at?.getTime() ?? null,
  joined: unit.joined_at.getTime(),
});
