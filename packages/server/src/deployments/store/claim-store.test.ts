import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { DATABASES, openServer, openTestDb, type TestDb } from "../../../testing/databases.ts";
import {
  addDeployment,
  assign,
  joinUnit,
  PRESENCE_TTL_MS,
  readDeployment,
  termOf,
} from "../../../testing/deployments.ts";
import { judgeBrakes } from "../../membership/store/brake-store.ts";
import {
  leaveNodeUnit,
  renewPresence,
  setDraining,
} from "../../membership/store/node-unit-store.ts";
import { openPostgres } from "../../store/postgres.ts";
import { sql } from "../../store/sql.ts";
import type { Assignment } from "../assignment.ts";
import type { DeploymentRow } from "../deployment-row.ts";
import { claimFirstFree, releaseLost, reserveFirst } from "./claim-store.ts";
import { dropDeadMoves } from "./move-store.ts";
import { forgetLostAfter, recordReport } from "./status-store.ts";

describe.each(DATABASES)("claims and releases on %s", (kind) => {
  let store: TestDb;
  beforeAll(async () => {
    store = await openTestDb(kind);
  });
  afterAll(() => store.close());
  beforeEach(() =>
    store.db.script(
      "delete from deployment; delete from node_unit; delete from tenant_brake; update membership_brake set released_at = '-infinity'",
    ),
  );

  const claim = (
    node: { address: string; epoch: number },
    ...rows: Parameters<typeof termOf>[0][]
  ) => claimFirstFree(store.db, node, rows.map(termOf));

  describe("a claim", () => {
    test("a claim takes the first free candidate, and only that one", async () => {
      const node = await joinUnit(store.db, "n");
      const rows = [
        await addDeployment(store.db, { address: "other" }),
        await addDeployment(store.db),
        await addDeployment(store.db),
      ];
      expect(await claim(node, ...rows)).toEqual({
        outcome: "claimed",
        claim: { id: rows[1]!.id, generation: 1 },
      });
      expect(await readDeployment(store.db, rows[1]!.id)).toMatchObject({ address: "n" });
      expect(await readDeployment(store.db, rows[2]!.id)).toMatchObject({ address: "" });
    });

    test("a claim of a former generation takes nothing", async () => {
      const node = await joinUnit(store.db, "n");
      const seen = await addDeployment(store.db);
      await assign(store.db, seen.id, "other");
      await assign(store.db, seen.id, "");
      expect(await claim(node, seen)).toEqual({ outcome: "conflict" });
      expect(await claim(node, await readDeployment(store.db, seen.id))).toMatchObject({
        claim: { generation: 3 },
      });
    });

    test.each([
      ["R5, I3: a daemon", { type: "daemon" }],
      ["R11: a row of an unknown type", { type: "cron" }],
      ["a disabled row", { enabled: false }],
      ["a row whose selector asks for another label", { selector: { zone: "x" } }],
      ["a row pinned to another node", { selector: { address: "m" } }],
    ])("never takes %s", async (_, change) => {
      const node = await joinUnit(store.db, "n", { labels: { zone: "y", address: "m" } });
      const row = await addDeployment(store.db, change);
      expect(await claim(node, row)).toEqual({ outcome: "conflict" });
      expect(await readDeployment(store.db, row.id)).toMatchObject({ address: "", generation: 0 });
    });

    test("a claim takes a row whose selector matches the node", async () => {
      const node = await joinUnit(store.db, "n", { labels: { zone: "x" } });
      const row = await addDeployment(store.db, { selector: { zone: "x", address: "n" } });
      expect(await claim(node, row)).toMatchObject({ outcome: "claimed" });
    });

    test("a claim of a node that is replaced, gone, silent, drained or of policy none is refused", async () => {
      const row = await addDeployment(store.db);
      const boot_id = randomUUID();
      const old = await joinUnit(store.db, "n", { boot_id });
      const node = await joinUnit(store.db, "n", { boot_id });
      expect(await claim(old, row)).toEqual({ outcome: "refused", why: "replaced" });
      await setDraining(store.db, "n", true);
      expect(await claim(node, row)).toEqual({ outcome: "refused", why: "draining" });
      await setDraining(store.db, "n", false);
      await store.advance(PRESENCE_TTL_MS + 1);
      expect(await claim(node, row)).toEqual({ outcome: "refused", why: "replaced" });
      await renewPresence(store.db, [node], PRESENCE_TTL_MS);
      await leaveNodeUnit(store.db, node);
      expect(await claim(node, row)).toEqual({ outcome: "refused", why: "replaced" });
      expect(await claim({ address: "nobody", epoch: 1 }, row)).toEqual({
        outcome: "refused",
        why: "replaced",
      });
      const none = await joinUnit(store.db, "none", { claim_policy: "none" });
      expect(await claim(none, row)).toEqual({ outcome: "refused", why: "policy_none" });
      expect(await readDeployment(store.db, row.id)).toMatchObject({ address: "", generation: 0 });
    });
  });

  describe("a release", () => {
    const release = async (...addresses: string[]) => {
      const node = await joinUnit(store.db, `caller-${randomUUID()}`);
      const freed = await releaseLost(store.db, node, addresses);
      return freed.outcome === "released" ? freed.released.map(({ id }) => id) : freed;
    };

    test("a release waits for the lost_after_ms that the owner uses, until the owner has acknowledged a lower one", async () => {
      const owner = await joinUnit(store.db, "lost");
      const row = await addDeployment(store.db, { address: "lost", lost_after_ms: 60_000 });
      const say = (lost_after_ms?: number) =>
        recordReport(store.db, owner, {
          ...{ deployment_id: row.id, generation: row.generation, state: "running" },
          ...(lost_after_ms !== undefined && { lost_after_ms }),
        });
      const lower = (force = false) =>
        store.db
          .script(`update deployment set lost_after_ms = 0 where id = '${row.id}'`)
          .then(async () => void (force && (await forgetLostAfter(store.db, row.id))));
      await say(60_000);
      await lower();
      await leaveNodeUnit(store.db, owner);
      expect(await release("lost")).toEqual([]);
      await store.advance(59_000);
      expect(await release("lost")).toEqual([]);
      await lower(true);
      expect(await release("lost")).toEqual([row.id]);
    });

    test.each([
      ["has acknowledged a lower lost_after_ms", 0],
      ["never says what it goes by, as 0.1.0", undefined],
    ])("waits no longer than the row says for an owner that %s", async (_, said) => {
      const owner = await joinUnit(store.db, "lost");
      const row = await addDeployment(store.db, { address: "lost", lost_after_ms: 0 });
      await recordReport(store.db, owner, {
        ...{ deployment_id: row.id, generation: row.generation, state: "running" },
        ...(said !== undefined && { lost_after_ms: said }),
      });
      await leaveNodeUnit(store.db, owner);
      expect(await release("lost")).toEqual([row.id]);
    });

    test("a release frees the rows of a node that left, in a new term; a second one changes nothing", async () => {
      const lost = await joinUnit(store.db, "lost");
      const row = await addDeployment(store.db, { address: "lost" });
      await leaveNodeUnit(store.db, lost);
      expect(await release("lost")).toEqual([row.id]);
      expect(await readDeployment(store.db, row.id)).toMatchObject({ address: "", generation: 2 });
      expect(await release("lost")).toEqual([]);
      expect(await readDeployment(store.db, row.id)).toMatchObject({ generation: 2 });
    });

    test("a release by a stale view takes nothing from a present node", async () => {
      await joinUnit(store.db, "here");
      const row = await addDeployment(store.db, { address: "here" });
      expect(await release("here")).toEqual([]);
      expect(await readDeployment(store.db, row.id)).toMatchObject({ address: "here" });
    });

    test("a release frees the rows of an unknown address", async () => {
      const row = await addDeployment(store.db, { address: "typo" });
      expect(await release("typo", "")).toEqual([row.id]);
    });

    test("a release frees the rows of a node whose presence expired: it and its instance died together", async () => {
      await joinUnit(store.db, "dead");
      const row = await addDeployment(store.db, { address: "dead" });
      await store.advance(PRESENCE_TTL_MS - 1_000);
      expect(await release("dead")).toEqual([]);
      await store.advance(2_000);
      // The first caller was not heard since: it may be gone as well.
      expect(await release("dead")).toEqual([]);
      await store.advance(5_000);
      expect(await release("dead")).toEqual([row.id]);
    });

    test("a release after a silent loss waits until every present node-unit answered, at most 5 s", async () => {
      const [caller, other] = [
        await joinUnit(store.db, "caller"),
        await joinUnit(store.db, "other"),
      ];
      const waits = async (how: "closed" | "silent", lose: () => Promise<unknown>) => {
        const lost = await joinUnit(store.db, how);
        const row = await addDeployment(store.db, { address: how });
        await leaveNodeUnit(store.db, lost, how === "silent");
        const freed = async () => {
          const outcome = await releaseLost(store.db, caller, [how]);
          return outcome.outcome === "released" && outcome.released.some(({ id }) => id === row.id);
        };
        const before = await freed();
        await lose();
        return [before, await freed()];
      };
      const hear = (...heard: { address: string; epoch: number }[]) =>
        renewPresence(store.db, heard, PRESENCE_TTL_MS);
      expect(await waits("closed", async () => {})).toEqual([true, false]);
      await hear(caller, other);
      expect(await waits("silent", () => hear(caller))).toEqual([false, false]);
      expect(await waits("silent", () => hear(caller, other))).toEqual([false, true]);
      expect(await waits("silent", () => store.advance(4_500))).toEqual([false, false]);
      expect(await waits("silent", () => store.advance(5_500))).toEqual([false, true]);
    });

    test("a release counts node-units that did not answer since a silent loss as lost, for the brake", async () => {
      const caller = await joinUnit(store.db, "caller");
      const units = [];
      for (const name of ["a", "b", "c"]) {
        units.push(await joinUnit(store.db, name));
        await addDeployment(store.db, { address: name });
      }
      const [first, second, third] = units;
      await leaveNodeUnit(store.db, first!, true);
      await leaveNodeUnit(store.db, second!, true);
      await store.advance(5_500);
      await renewPresence(store.db, [caller], PRESENCE_TTL_MS);
      const released = async () => {
        const outcome = await releaseLost(store.db, caller, ["a", "b"], {
          brakeTtlMs: PRESENCE_TTL_MS,
        });
        return outcome.outcome === "released" && outcome.released.map(({ address }) => address);
      };
      expect(await released()).toEqual([]);
      await renewPresence(store.db, [third!], PRESENCE_TTL_MS);
      expect(await released()).toEqual(["a", "b"]);
    });

    test("a release sees a mass loss before any instance has engaged the brake", async () => {
      const caller = await joinUnit(store.db, "caller");
      const lost = [];
      for (const name of ["a", "b", "c"]) {
        lost.push(await joinUnit(store.db, name));
        await addDeployment(store.db, { address: name });
      }
      for (const unit of lost) await leaveNodeUnit(store.db, unit);
      const all = ["a", "b", "c"];
      expect(
        await releaseLost(store.db, caller, all, { brakeTtlMs: PRESENCE_TTL_MS }),
      ).toMatchObject({
        released: [],
      });
      expect(await releaseLost(store.db, caller, all)).toMatchObject({
        released: [expect.anything(), expect.anything(), expect.anything()],
      });
    });

    test("a mass loss stops the releases of the tenants that the lost node-units serve, and of no other", async () => {
      const serving = { default: ["default"], blue: ["blue"], both: ["default", "blue"] };
      const joinAs = (name: string, as: keyof typeof serving) =>
        joinUnit(store.db, name, { tenants: serving[as] });
      const caller = await joinAs("caller", "both");
      const own = await joinAs("own", "default");
      const row = await addDeployment(store.db, { address: "own" });
      const blue = [];
      for (const name of ["a", "b", "c"]) {
        blue.push(await joinAs(name, "blue"));
        await addDeployment(store.db, { address: name, tenant: "blue" });
      }
      for (const unit of blue) await leaveNodeUnit(store.db, unit);
      await leaveNodeUnit(store.db, own);
      const released = async () => {
        const rules = { brakeTtlMs: PRESENCE_TTL_MS };
        const outcome = await releaseLost(store.db, caller, ["own", "a", "b", "c"], rules);
        return outcome.outcome === "released" && outcome.released.map(({ id }) => id);
      };
      expect(await released()).toEqual([row.id]);
      expect(await judgeBrakes(store.db, PRESENCE_TTL_MS)).toEqual([
        expect.objectContaining({ tenant: "blue", active: true, lost: 3, members: 3 }),
      ]);
      await assign(store.db, row.id, "own");
      await store.advance(2 * PRESENCE_TTL_MS);
      await renewPresence(store.db, [caller], PRESENCE_TTL_MS);
      expect(await released()).toEqual([row.id]);
      const { rows: sum } = await store.db.query(
        sql`select active, lost, members from membership_brake`,
      );
      expect(sum).toEqual([{ active: true, lost: 3, members: 3 }]);
      // Node-units that serve both count for both.
      const shared = [];
      for (const name of ["d", "e", "f"]) {
        shared.push(await joinAs(name, "both"));
        await addDeployment(store.db, { address: name, tenant: "blue" });
      }
      for (const unit of shared) await leaveNodeUnit(store.db, unit);
      await assign(store.db, row.id, "own");
      expect(await released()).toEqual([]);
    });

    test.each([
      { instance: "ran out", at: "20 s ago", heard: 26_000, isFree: true },
      { instance: "ran out", at: "20 s ago", heard: 20_000, isFree: false },
      { instance: "ran out", at: "5 s ago", heard: 40_000, isFree: false },
      { instance: "is live", at: "in 10 s", heard: 40_000, isFree: false },
      { instance: "stopped in good order", at: "", heard: 40_000, isFree: false },
    ])("of a node heard $heard ms ago whose instance $instance $at: $isFree", async (lost) => {
      const { at, heard, isFree } = lost;
      await joinUnit(store.db, "with-instance", { instance_id: "gone" });
      const row = await addDeployment(store.db, { address: "with-instance" });
      await store.advance(heard);
      if (at !== "")
        await store.db.query(sql`
          insert into instance (instance_id, boot_id, url, version, expires_at)
          values ('gone', gen_random_uuid(), 'http://x', '1',
                  tenure_now() + ${at.startsWith("in") ? 10 : -Number.parseInt(at, 10)} * interval '1 s')`);
      await store.db.script(
        "update node_unit set renewed_at = tenure_now() where address <> 'with-instance'",
      );
      await store.advance(1);
      expect(await release("with-instance")).toEqual(isFree ? [row.id] : []);
      await store.db.script("delete from instance");
    });

    test.each([
      ["left", (lost: { address: string; epoch: number }) => leaveNodeUnit(store.db, lost)],
      ["fell silent", () => store.advance(PRESENCE_TTL_MS)],
    ])("waits lost_after_ms of each row from when its node %s", async (_, lose) => {
      const lost = await joinUnit(store.db, "lost");
      const patient = await addDeployment(store.db, { address: "lost", lost_after_ms: 40_000 });
      const hasty = await addDeployment(store.db, { address: "lost" });
      await lose(lost);
      await store.advance(1_000);
      expect(await release("lost")).toEqual([hasty.id]);
      await store.advance(38_000);
      expect(await release("lost")).toEqual([]);
      await store.advance(2_000);
      expect(await release("lost")).toEqual([patient.id]);
    });

    test("R9, I3: a release leaves daemons, unknown types and disabled rows as they are", async () => {
      const rows = [
        await addDeployment(store.db, { type: "daemon", address: "typo" }),
        await addDeployment(store.db, { type: "cron", address: "typo" }),
        await addDeployment(store.db, { enabled: false, address: "typo" }),
      ];
      expect(await release("typo")).toEqual([]);
      for (const row of rows)
        expect(await readDeployment(store.db, row.id)).toMatchObject({ address: "typo" });
    });

    test("the mass-loss brake stops a release", async () => {
      const units = [];
      for (const name of ["a", "b", "c", "d"]) units.push(await joinUnit(store.db, name));
      const row = await addDeployment(store.db, { address: "a" });
      for (const address of ["b", "c", "d"]) await addDeployment(store.db, { address });
      for (const unit of units.slice(0, 3)) await leaveNodeUnit(store.db, unit);
      await judgeBrakes(store.db, PRESENCE_TTL_MS);
      expect(await release("a", "typo")).toEqual([]);
      await store.db.script("delete from tenant_brake");
      expect(await release("a")).toEqual([row.id]);
    });

    test("I2, R13: a release by a node of policy none, or by a replaced one, is refused", async () => {
      const row = await addDeployment(store.db, { address: "typo" });
      const none = await joinUnit(store.db, "none", { claim_policy: "none" });
      const former = { address: "none", epoch: none.epoch - 1 };
      expect(await releaseLost(store.db, none, ["typo"])).toEqual({
        outcome: "refused",
        why: "policy_none",
      });
      expect(await releaseLost(store.db, former, ["typo"])).toMatchObject({ why: "replaced" });
      expect(await readDeployment(store.db, row.id)).toMatchObject({ address: "typo" });
    });
  });

  describe("a reservation", () => {
    const reserve = async (node: { address: string; epoch: number }, id: string) =>
      (await reserveFirst(store.db, node, [termOf(await readDeployment(store.db, id))])).outcome;

    test("one row of an owner moves at a time for each tenant; a row that changes its tenant ends its move", async () => {
      const tenants = ["default", "blue"];
      await joinUnit(store.db, "owner", { tenants });
      const node = await joinUnit(store.db, "n", { tenants });
      const rows = [];
      for (const tenant of ["default", "default", "blue"])
        rows.push(await addDeployment(store.db, { address: "owner", tenant }));
      await setDraining(store.db, "owner", true);
      const outcomes = [];
      for (const { id } of rows) outcomes.push(await reserve(node, id));
      expect(outcomes).toEqual(["claimed", "conflict", "claimed"]);
      await store.db.query(sql`update deployment set tenant = 'default' where id = ${rows[2]!.id}`);
      expect(await readDeployment(store.db, rows[2]!.id)).toMatchObject({
        ...{ moving_to: "", move_state: "" },
      });
    });

    test("a node that did not install a row in 10 minutes leaves it to others for a minute", async () => {
      await joinUnit(store.db, "owner");
      const idle = await joinUnit(store.db, "idle");
      const row = await addDeployment(store.db, { address: "owner" });
      await setDraining(store.db, "owner", true);
      expect(await reserve(idle, row.id)).toBe("claimed");
      await store.advance(10 * 60_000 + 1_000);
      await store.db.script("update node_unit set presence_expires_at = 'infinity'");
      expect(await dropDeadMoves(store.db)).toBe(1);
      expect(await reserve(idle, row.id)).toBe("conflict");
      await store.advance(61_000);
      expect(await reserve(idle, row.id)).toBe("claimed");
    });
  });

  describe("R8: only an unassigned deployment can be claimed, only a lost one released", () => {
    const prepare: Record<Assignment, () => Promise<{ id: string; generation: number }>> = {
      unassigned: () => addDeployment(store.db),
      assigned: () => addDeployment(store.db, { address: "present" }),
      lost: () => addDeployment(store.db, { address: "lost" }),
      disabled: () => addDeployment(store.db, { enabled: false }),
      daemon: () => addDeployment(store.db, { type: "daemon" }),
      invalid: () => addDeployment(store.db, { type: "cron" }),
    };
    test.each(
      Object.keys(prepare) as Assignment[],
    )("a deployment that is %s", async (assignment) => {
      const node = await joinUnit(store.db, "n");
      await joinUnit(store.db, "present");
      const { id } = await prepare[assignment]();
      const seen = await readDeployment(store.db, id);
      const claimed = (await claim(node, seen)).outcome === "claimed";
      expect(claimed).toBe(assignment === "unassigned");
      const freed = await releaseLost(store.db, node, [seen.address || "x", "n"]);
      expect(freed).toMatchObject({
        released: assignment === "lost" ? [{ id }] : [],
      });
    });
  });

  test("I1: a term only rises, even if an operator moves a row with SQL", async () => {
    const row = await addDeployment(store.db);
    expect(await assign(store.db, row.id, "x")).toMatchObject({ generation: 1 });
    expect(await assign(store.db, row.id, "x")).toMatchObject({ generation: 1 });
    expect(await assign(store.db, row.id, "")).toMatchObject({ generation: 2 });
    await store.db.query(sql`update deployment set generation = 0 where id = ${row.id}`);
    expect(await readDeployment(store.db, row.id)).toMatchObject({ generation: 2 });
  });
});

describe("races, on a real Postgres", () => {
  test("I1: two nodes race for one row 1,000 times: one owner each time, generations only rise", {
    timeout: 120_000, // three seconds on a machine with nothing else to do
  }, async () => {
    const server = await openServer();
    const rivals = [1, 2].map(() => openPostgres({ uri: server.uri, poolMax: 1 }));
    const nodes = [await joinUnit(server.db, "left"), await joinUnit(server.db, "right")];
    // On a machine with much else to do the race takes longer than a presence that nobody renews.
    await server.db.query(sql`update node_unit set presence_expires_at = 'infinity'`);
    const { id } = await addDeployment(server.db);
    const wins = { left: 0, right: 0 };
    let generation = 0;
    for (let round = 0; round < 1_000; round++) {
      const outcomes = await Promise.all(
        rivals.map((db, index) => claimFirstFree(db, nodes[index]!, [{ id, generation }])),
      );
      const won = outcomes.flatMap((outcome, index) =>
        outcome.outcome === "claimed" ? [{ ...outcome.claim, by: nodes[index]!.address }] : [],
      );
      expect(won).toHaveLength(1);
      expect(won[0]!.generation).toBe(generation + 1);
      const { rows } = await server.db.query<{ owner: string; term: number; next: number }>(sql`
        update deployment set address = ''
          from (select id, address, generation from deployment where id = ${id}) as was
         where deployment.id = was.id
        returning was.address as owner, was.generation as term, deployment.generation as next`);
      expect(rows[0]).toMatchObject({ owner: won[0]!.by, term: generation + 1 });
      wins[won[0]!.by as "left" | "right"]++;
      generation = rows[0]!.next;
    }
    expect(Math.min(wins.left, wins.right)).toBeGreaterThan(0);
    await Promise.all(rivals.map((db) => db.close()));
    await server.close();
  });

  test("I1: many nodes that claim, leave and release at once never leave a row with two terms", async () => {
    const server = await openServer({ poolMax: 8 });
    await server.db.script(`
      create table audit (id uuid, before bigint, after bigint, address text);
      create function audit_write() returns trigger language plpgsql as $$
      begin
        insert into audit values (new.id, old.generation, new.generation, new.address);
        return null;
      end $$;
      create trigger audit_write after update of address on deployment
        for each row when (old.address <> new.address) execute function audit_write();`);
    const rows: DeploymentRow[] = [];
    for (let n = 0; n < 5; n++) rows.push(await addDeployment(server.db));
    const live = async (name: string) => {
      for (let turn = 0; turn < 15; turn++) {
        const node = await joinUnit(server.db, name);
        const seen = await Promise.all(rows.map(({ id }) => readDeployment(server.db, id)));
        await claimFirstFree(server.db, node, seen.map(termOf));
        await releaseLost(
          server.db,
          node,
          seen.map(({ address }) => address || "nobody"),
        );
        await leaveNodeUnit(server.db, node);
      }
    };
    await Promise.all(["a", "b", "c", "d"].map(live));
    const { rows: writes } = await server.db.query<{ before: number; after: number }>(
      sql`select before, after from audit`,
    );
    expect(writes.length).toBeGreaterThan(5); // how many is chance; that there were some is the point
    expect(writes.every(({ before, after }) => after === before + 1)).toBe(true);
    const { rows: twice } = await server.db.query(
      sql`select id, after from audit group by id, after having count(*) > 1`,
    );
    expect(twice).toEqual([]);
    await server.close();
  });

  test("I1: a node that leaves during its claim does not stay an owner that is never released", async () => {
    const server = await openServer();
    const node = await joinUnit(server.db, "n");
    const row = await addDeployment(server.db);
    await Promise.all([
      claimFirstFree(server.db, node, [termOf(row)]),
      leaveNodeUnit(server.db, node),
    ]);
    const other = await joinUnit(server.db, "other");
    await releaseLost(server.db, other, ["n"]);
    expect(await readDeployment(server.db, row.id)).toMatchObject({ address: "" });
    await server.close();
  });
});
