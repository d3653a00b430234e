import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { DATABASES, openTestDb, type TestDb } from "../../../testing/databases.ts";
import { addDeployment, assign, joinUnit } from "../../../testing/deployments.ts";
import { EVERYTHING } from "../../kernel/scope.ts";
import { leaveNodeUnit } from "../../membership/store/node-unit-store.ts";
import { countDeployments } from "./count-store.ts";
import { recordReport } from "./status-store.ts";

describe.each(DATABASES)("what runs, counted on %s", (kind) => {
  let store: TestDb;
  beforeAll(async () => {
    store = await openTestDb(kind);
  });
  afterAll(() => store.close());

  test("counts use the reports of present nodes only", async () => {
    const [here, leaving] = [await joinUnit(store.db, "here"), await joinUnit(store.db, "leaving")];
    const run = async (node: typeof here, state: "running" | "backoff") => {
      const { id } = await addDeployment(store.db);
      const { generation } = await assign(store.db, id, node.address);
      await recordReport(store.db, node, { deployment_id: id, generation, state, restarts: 0 });
    };
    await run(here, "running");
    await run(here, "backoff");
    await run(leaving, "running");
    await addDeployment(store.db);
    expect(await countDeployments(store.db, EVERYTHING)).toEqual({
      enabled: 4,
      unassigned: 1,
      running: 2,
      failing: 1,
    });
    await leaveNodeUnit(store.db, leaving);
    expect(await countDeployments(store.db, EVERYTHING)).toMatchObject({ running: 1, failing: 2 });
  });
});
