import { randomUUID } from "node:crypto";
import { DEFAULT_TENANT } from "@tenure/protocol";
import { until } from "@tenure/testing/until";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { DATABASES, openTestDb, type TestDb } from "../../../testing/databases.ts";
import { addDeployment } from "../../../testing/deployments.ts";
import { EVERYTHING } from "../../kernel/scope.ts";
import type { Db } from "../../store/db.ts";
import { listEvents } from "../../store/event-store.ts";
import { brakeOf, judgeBrakes, listBrakes, releaseBrake } from "./brake-store.ts";
import {
  expectedAddresses,
  joinNodeUnit,
  joinNodeUnits,
  leaveNodeUnit,
  type NewNodeUnit,
  nextEpochs,
  renewPresence,
  setDraining,
} from "./node-unit-store.ts";
import { listOnlineUnits } from "./online-unit-store.ts";

const TTL_MS = 45_000;

describe.each(DATABASES)("node-units on %s", (kind) => {
  let store: TestDb;
  beforeAll(async () => {
    store = await openTestDb(kind);
  });
  afterAll(() => store.close());
  beforeEach(() =>
    store.db.script(
      "delete from event; delete from node_unit; delete from tenant_brake; update membership_brake set released_at = '-infinity'",
    ),
  );

  const unit = (
    address: string,
    epoch: number,
    boot_id: string,
    instance_id = "a",
  ): NewNodeUnit => ({
    address,
    name: address,
    version: "1",
    instance_id,
    boot_id,
    epoch,
    claim_policy: "deployment_count",
    labels: { zone: "b" },
    trusted_package_regexp: "",
    custom_command: false,
    tags: { node_unit: true },
  });
  const join = (address: string, epoch: number, boot: string, instance?: string) =>
    joinNodeUnit(store.db, unit(address, epoch, boot, instance), TTL_MS);
  const present = async () =>
    (await listOnlineUnits(store.db)).filter((row) => row.present).map((row) => row.address);

  test("epochs only rise, also when several are taken at once", async () => {
    const epochs = [...(await nextEpochs(store.db, 3)), ...(await nextEpochs(store.db, 1))];
    expect(epochs).toEqual([...epochs].sort((a, b) => a - b));
    expect(new Set(epochs).size).toBe(4);
  });

  test("the same boot takes its row over on another instance, and is still the same member", async () => {
    const boot = randomUUID();
    const first = await join("n", 1, boot, "a");
    await store.advance(1_000);
    const second = await join("n", 2, boot, "b");
    expect(second).toMatchObject({
      instance_id: "b",
      epoch: 2,
      present: true,
      labels: { zone: "b" },
    });
    expect(second?.joined_at).toEqual(first?.joined_at);
  });

  test("a join is told once, whoever looked at the members last; a reconnect is not", async () => {
    const [boot, next] = [randomUUID(), randomUUID()];
    await join("told", 1, boot, "a");
    await join("told", 2, boot, "b");
    await leaveNodeUnit(store.db, { address: "told", epoch: 2 });
    await join("told", 3, boot, "a");
    expect(await join("told", 4, next, "a")).toBeUndefined();
    await store.advance(TTL_MS + 1_000);
    await join("told", 5, next, "b");
    const told = await listEvents(store.db, {
      scope: EVERYTHING,
      event: "node.joined",
      subject: "told",
      limit: 9,
    });
    expect(told.map(({ details }) => details)).toEqual([
      { epoch: 5, instance_id: "b" },
      { epoch: 3, instance_id: "a" },
      { epoch: 1, instance_id: "a" },
    ]);
  });

  test("node-units that join together are judged one by one", async () => {
    const boot = randomUUID();
    await join("mine", 1, boot);
    await join("taken", 2, randomUUID());
    await join("overtaken", 9, boot);
    const units = [
      { ...unit("new", 3, boot), tenants: ["a", "b"] },
      ...[unit("mine", 4, boot), unit("taken", 5, boot), unit("overtaken", 6, boot)],
    ];
    const joined = await joinNodeUnits(store.db, units, TTL_MS);
    expect([...joined.keys()].sort()).toEqual(["mine", "new"]);
    expect(joined.get("new")).toMatchObject({ epoch: 3, tenants: ["a", "b"], present: true });
    const rows = await listOnlineUnits(store.db);
    expect(rows.map(({ address, epoch, labels }) => [address, epoch, labels])).toEqual([
      ["mine", 4, { zone: "b" }],
      ["new", 3, { zone: "b" }],
      ["overtaken", 9, { zone: "b" }],
      ["taken", 2, { zone: "b" }],
    ]);
    const events = await listEvents(store.db, {
      ...{ scope: EVERYTHING, event: "node.joined", limit: 9 },
    });
    expect(events.map(({ subject }) => subject).sort()).toEqual([
      ...["mine", "new", "overtaken", "taken"],
    ]);
  });

  test("joins and renewals of the same node-units at once do not wait for each other without end", async () => {
    const boot = randomUUID();
    const names = Array.from({ length: 200 }, (_, n) => `n${n}`);
    const at = (epoch: number) => names.map((name) => unit(name, epoch, boot));
    await joinNodeUnits(store.db, at(1), TTL_MS);
    for (let epoch = 2; epoch <= 12; epoch++) {
      const terms = names.map((address) => ({ address, epoch: epoch - 1 }));
      await Promise.all([
        renewPresence(store.db, terms, TTL_MS),
        joinNodeUnits(store.db, at(epoch), TTL_MS),
        renewPresence(store.db, terms.toReversed(), TTL_MS),
        joinNodeUnits(store.db, at(epoch).reverse(), TTL_MS),
      ]);
    }
    expect((await listOnlineUnits(store.db)).every(({ epoch }) => epoch === 12)).toBe(true);
  });

  test("another boot is refused while the first answers, let in when it left", async () => {
    await join("n", 1, randomUUID());
    expect(await join("n", 2, randomUUID())).toBeUndefined();
    await leaveNodeUnit(store.db, { address: "n", epoch: 1 });
    expect(await join("n", 3, randomUUID())).toMatchObject({ epoch: 3 });
  });

  test("another boot is let in when the presence of the first has run out", async () => {
    await join("n", 1, randomUUID());
    await store.advance(TTL_MS - 1_000);
    expect(await join("n", 2, randomUUID())).toBeUndefined();
    await store.advance(2_000);
    expect(await join("n", 3, randomUUID())).toMatchObject({ epoch: 3 });
  });

  test("a join that was overtaken by a newer connection of the same boot changes nothing", async () => {
    const boot = randomUUID();
    await join("n", 9, boot, "new");
    expect(await join("n", 8, boot, "old")).toBeUndefined();
    expect((await listOnlineUnits(store.db))[0]).toMatchObject({ epoch: 9, instance_id: "new" });
  });

  test("a late close of an old connection does not remove the newer one", async () => {
    const boot = randomUUID();
    await join("n", 1, boot);
    await join("n", 2, boot);
    expect(await leaveNodeUnit(store.db, { address: "n", epoch: 1 })).toBe(false);
    expect(await present()).toEqual(["n"]);
    expect(await leaveNodeUnit(store.db, { address: "n", epoch: 2 })).toBe(true);
    expect(await present()).toEqual([]);
    const told = await listEvents(store.db, {
      scope: EVERYTHING,
      event: "node.left",
      subject: "n",
      limit: 5,
    });
    expect(told[0]).toMatchObject({ details: { epoch: 2 } });
    expect(told.filter(({ details }) => details.epoch === 1)).toEqual([]);
  });

  test("presence is renewed for the current connection only, and runs out without", async () => {
    const boot = randomUUID();
    await join("n", 1, boot);
    await join("m", 2, randomUUID());
    await join("n", 3, boot);
    await store.advance(TTL_MS - 1_000);
    const terms = [
      { address: "n", epoch: 1 },
      { address: "m", epoch: 2 },
      { address: "gone", epoch: 4 },
    ];
    expect(await renewPresence(store.db, terms, TTL_MS)).toEqual(new Set(["m"]));
    await store.advance(2_000);
    expect(await present()).toEqual(["m"]);
  });

  test("a node that left is not brought back by a renewal that was under way", async () => {
    await join("n", 1, randomUUID());
    await leaveNodeUnit(store.db, { address: "n", epoch: 1 });
    expect(await renewPresence(store.db, [{ address: "n", epoch: 1 }], TTL_MS)).toEqual(new Set());
  });

  test("a drain survives the node's restart", async () => {
    await join("n", 1, randomUUID());
    expect(await setDraining(store.db, "n", true)).toBe(true);
    await leaveNodeUnit(store.db, { address: "n", epoch: 1 });
    expect(await join("n", 2, randomUUID())).toMatchObject({ draining: true });
    expect(await setDraining(store.db, "nobody", true)).toBe(false);
  });

  test("after a restart of everything, whoever was here a TTL ago is expected", async () => {
    await join("here", 1, randomUUID());
    await join("left", 2, randomUUID());
    await leaveNodeUnit(store.db, { address: "left", epoch: 2 });
    expect((await expectedAddresses(store.db, TTL_MS)).sort()).toEqual(["here", "left"]);
    await store.advance(2 * TTL_MS + 1_000);
    expect(await expectedAddresses(store.db, TTL_MS)).toEqual([]);
  });

  test("a change of the fleet wakes whoever listens; a renewal, a look and a late close do not", async () => {
    let heard = 0;
    await store.db.listen("tenure_membership", () => heard++);
    // To have connected is a wake-up of its own: something may have happened before.
    const connected = heard;
    await join("n", 1, randomUUID());
    for (let n = 0; n < 20; n++) {
      await renewPresence(store.db, [{ address: "n", epoch: 1 }], TTL_MS);
      await judgeBrakes(store.db, TTL_MS);
      await leaveNodeUnit(store.db, { address: "nobody", epoch: 1 });
    }
    // Wake-ups arrive in order: when the last one is here, any of those would be here too.
    await leaveNodeUnit(store.db, { address: "n", epoch: 1 });
    await until(() => heard >= connected + 2, {
      what: "a wake-up for the join, one for the leave",
    });
    expect(heard - connected).toBe(2);
  });

  test.each([
    1, 30, 400, 40_000,
  ])("a node-unit gone for %d days does not stop the list", async (days) => {
    await join("gone", 1, randomUUID());
    await leaveNodeUnit(store.db, { address: "gone", epoch: 1 });
    await join("silent", 2, randomUUID());
    await store.advance(days * 86_400_000);
    await join("here", 3, randomUUID());
    expect(await present()).toEqual(["here"]);
    await store.advance(-days * 86_400_000);
  });

  test("a presence written by SQL as infinite is read, and counts as long", async () => {
    await join("n", 1, randomUUID());
    await store.db.script("update node_unit set presence_expires_at = 'infinity'");
    expect(await listOnlineUnits(store.db)).toMatchObject([{ address: "n", present: true }]);
  });

  describe("the mass-loss brake", () => {
    /** The change of the one tenant. */
    const judgeBrake = async (db: Db, ttlMs: number) => (await judgeBrakes(db, ttlMs))[0];
    const readBrake = async (db: Db) => brakeOf(await listBrakes(db), [DEFAULT_TENANT]);
    const joinMany = async (count: number) => {
      for (let n = 0; n < count; n++) await join(`n${n}`, n + 1, randomUUID());
      await store.db.script("update node_unit set joined_at = joined_at - interval '1 hour'");
    };
    const loseMany = async (count: number) => {
      for (let n = 0; n < count; n++)
        await leaveNodeUnit(store.db, { address: `n${n}`, epoch: n + 1 });
    };

    test("is put on by the loss of more than half and at least three, and says so once", async () => {
      await joinMany(5);
      await loseMany(3);
      expect(await judgeBrake(store.db, TTL_MS)).toMatchObject({
        active: true,
        lost: 3,
        members: 5,
      });
      expect(await judgeBrake(store.db, TTL_MS)).toBeUndefined();
      expect(await readBrake(store.db)).toMatchObject({ active: true, lost: 3, members: 5 });
    });

    test.each([
      { members: 6, lost: 3, why: "half is not more than half" },
      { members: 2, lost: 2, why: "two are fewer than three" },
    ])("stays off when $lost of $members are lost: $why", async ({ members, lost }) => {
      await joinMany(members);
      await loseMany(lost);
      expect(await judgeBrake(store.db, TTL_MS)).toBeUndefined();
    });

    test("counts presence that ran out as loss", async () => {
      await joinMany(4);
      await store.advance(TTL_MS + 1_000);
      expect(await judgeBrake(store.db, TTL_MS)).toMatchObject({
        active: true,
        lost: 4,
        members: 4,
      });
    });

    const comeBack = async (n: number) => {
      await join(`n${n}`, 10 + n, randomUUID());
      await store.db.script("update node_unit set joined_at = joined_at - interval '1 hour'");
    };

    test("time alone does not take it off; the return of all nodes does", async () => {
      await joinMany(5);
      await loseMany(4);
      await judgeBrake(store.db, TTL_MS);
      await store.advance(10 * TTL_MS);
      await renewPresence(store.db, [{ address: "n4", epoch: 5 }], TTL_MS);
      expect(await judgeBrake(store.db, TTL_MS)).toBeUndefined();
      for (const n of [0, 1, 2]) await comeBack(n);
      expect(await judgeBrake(store.db, TTL_MS)).toBeUndefined();
      await comeBack(3);
      expect(await judgeBrake(store.db, TTL_MS)).toMatchObject({ active: false, lost: 0 });
    });

    test("stays on while nodes come back, until the counts have not changed for a TTL", async () => {
      await joinMany(5);
      await loseMany(3);
      await judgeBrake(store.db, TTL_MS);
      await comeBack(0);
      expect(await judgeBrake(store.db, TTL_MS)).toBeUndefined();
      expect(await readBrake(store.db)).toMatchObject({ active: true, lost: 2, members: 5 });
      const here = [0, 3, 4].map((n) => ({ address: `n${n}`, epoch: n === 0 ? 10 : n + 1 }));
      for (const sinceMs of [TTL_MS - 1_000, 2_000]) {
        expect(await judgeBrake(store.db, TTL_MS)).toBeUndefined();
        await store.advance(sinceMs);
        await renewPresence(store.db, here, TTL_MS);
      }
      expect(await judgeBrake(store.db, TTL_MS)).toMatchObject({ active: false, lost: 2 });
    });

    test("does not count node-units that came a moment ago and own nothing", async () => {
      await joinMany(2);
      for (let n = 0; n < 20; n++) {
        await join(`passer-${n}`, 100 + n, randomUUID());
        await leaveNodeUnit(store.db, { address: `passer-${n}`, epoch: 100 + n });
      }
      expect(await judgeBrake(store.db, TTL_MS)).toBeUndefined();
      for (const n of [0, 1, 2]) await addDeployment(store.db, { address: `passer-${n}` });
      expect(await judgeBrake(store.db, TTL_MS)).toMatchObject({
        active: true,
        lost: 3,
        members: 5,
      });
      await store.db.script("delete from deployment");
    });

    test("an operator's release holds for what was lost until then, not for a new loss", async () => {
      await joinMany(8);
      await loseMany(5);
      await judgeBrake(store.db, TTL_MS);
      expect(await releaseBrake(store.db)).toBe(true);
      expect(await judgeBrake(store.db, TTL_MS)).toBeUndefined();
      expect(await releaseBrake(store.db)).toBe(false);
      await store.advance(1_000);
      for (const n of [5, 6, 7]) await leaveNodeUnit(store.db, { address: `n${n}`, epoch: n + 1 });
      expect(await judgeBrake(store.db, TTL_MS)).toMatchObject({ active: true, lost: 3 });
    });
  });
});
