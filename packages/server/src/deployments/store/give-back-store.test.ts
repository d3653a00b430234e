import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { DATABASES, openTestDb, type TestDb } from "../../../testing/databases.ts";
import { addDeployment, joinUnit, readDeployment, termOf } from "../../../testing/deployments.ts";
import { leaveNodeUnit } from "../../membership/store/node-unit-store.ts";
import { listOnlineUnits } from "../../membership/store/online-unit-store.ts";
import { releaseLost } from "./claim-store.ts";
import { giveBack } from "./give-back-store.ts";

describe.each(DATABASES)("giving back on %s", (kind) => {
  let store: TestDb;
  beforeAll(async () => {
    store = await openTestDb(kind);
  });
  afterAll(() => store.close());
  beforeEach(() => store.db.script("delete from deployment; delete from node_unit"));

  test("a stopping node frees its own rows of this term, and is marked as leaving", async () => {
    const node = await joinUnit(store.db, "n");
    const own = await addDeployment(store.db, { address: "n" });
    const others = await addDeployment(store.db, { address: "other" });
    const older = await addDeployment(store.db, { address: "n" });
    const named = [own, others].map(termOf);
    const formerTerm = { id: older.id, generation: older.generation - 1 };
    expect(await giveBack(store.db, node, [...named, formerTerm])).toEqual({
      outcome: "released",
      released: [{ id: own.id, generation: own.generation + 1 }],
    });
    expect(await readDeployment(store.db, own.id)).toMatchObject({ address: "" });
    expect(await readDeployment(store.db, others.id)).toMatchObject({ address: "other" });
    expect(await readDeployment(store.db, older.id)).toMatchObject({ address: "n" });
    expect(await listOnlineUnits(store.db)).toMatchObject([{ tags: { node_unit_leaving: true } }]);
  });

  test("a row that waits for its owner, a disabled one and a daemon stay as they are", async () => {
    const node = await joinUnit(store.db, "n");
    const rows = [
      await addDeployment(store.db, { address: "n", lost_after_ms: 1 }),
      await addDeployment(store.db, { address: "n", enabled: false }),
      await addDeployment(store.db, { address: "n", type: "daemon" }),
    ];
    expect(await giveBack(store.db, node, rows.map(termOf))).toMatchObject({ released: [] });
  });

  test("I2: a node of policy none gives nothing back, nor does one that was replaced or has left", async () => {
    const none = await joinUnit(store.db, "n", { claim_policy: "none" });
    const row = await addDeployment(store.db, { address: "n" });
    expect(await giveBack(store.db, none, [termOf(row)])).toMatchObject({ why: "policy_none" });
    const former = await joinUnit(store.db, "m");
    const its = await addDeployment(store.db, { address: "m" });
    await leaveNodeUnit(store.db, former);
    expect(await giveBack(store.db, former, [termOf(its)])).toMatchObject({ why: "replaced" });
    const back = await joinUnit(store.db, "m");
    expect(await giveBack(store.db, former, [termOf(its)])).toMatchObject({ why: "replaced" });
    expect(await readDeployment(store.db, row.id)).toMatchObject({ address: "n" });
    expect(await readDeployment(store.db, its.id)).toMatchObject({ address: "m" });
    // What a server makes of the call that does not know the rows it names.
    expect(await releaseLost(store.db, back, ["m"])).toMatchObject({ released: [] });
  });
});
