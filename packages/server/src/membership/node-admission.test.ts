import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { openTestDb, type TestDb } from "../../testing/databases.ts";
import { openTestHot } from "../../testing/hot-stores.ts";
import { systemClock } from "../kernel/clock.ts";
import type { Db } from "../store/db.ts";
import { createNodeAdmission } from "./node-admission.ts";
import type { NewNodeUnit } from "./store/node-unit-store.ts";

let store: TestDb;
beforeAll(async () => {
  store = await openTestDb("postgres");
});
afterAll(() => store.close());
beforeEach(() => store.db.script("delete from node_unit"));

const unit = (address: string, epoch: number, given: Partial<NewNodeUnit> = {}): NewNodeUnit => ({
  ...{ address, name: address, version: "1", instance_id: "i", boot_id: randomUUID(), epoch },
  ...{ claim_policy: "deployment_count", labels: {}, trusted_package_regexp: "" },
  ...{ custom_command: false, tags: { node_unit: true }, ...given },
});

/** An admission, and how many statements it sent. */
async function scene() {
  const { hot } = await openTestHot("memory");
  const sent = { count: 0 };
  const db: Db = {
    ...store.db,
    query(statement) {
      sent.count += 1;
      return store.db.query(statement);
    },
  };
  const admission = createNodeAdmission({ db, hot, clock: systemClock, presenceTtlMs: 45_000 });
  const admit = (units: NewNodeUnit[]) =>
    Promise.allSettled(units.map((one) => admission.admitUnit(one, undefined)));
  return { admit, sent };
}

const outcomes = (settled: PromiseSettledResult<{ epoch: number }>[]) =>
  settled.map((one) => (one.status === "fulfilled" ? one.value.epoch : one.reason.code));

test("node-units that join while another joins are one statement", async () => {
  const { admit, sent } = await scene();
  const units = Array.from({ length: 100 }, (_, n) => unit(`n${n}`, n + 1));
  expect(outcomes(await admit(units))).toEqual(units.map(({ epoch }) => epoch));
  expect(sent.count).toBe(2);
});

test("a node-unit that Postgres refuses keeps no other out", async () => {
  const { admit } = await scene();
  const units = [unit("a", 1), unit("b", 2), unit("c", 3, { name: "\u0000" }), unit("d", 4)];
  const settled = await admit(units);
  expect(settled.map(({ status }) => status)).toEqual([
    ...["fulfilled", "fulfilled", "rejected", "fulfilled"],
  ]);
});

test("of two processes with one address that join at once one is admitted", async () => {
  const { admit } = await scene();
  const units = [unit("a", 1), unit("b", 2), unit("b", 3), unit("c", 4)];
  const [first, ...others] = outcomes(await admit(units));
  expect([first, others.at(-1)]).toEqual([1, 4]);
  expect(others.slice(0, -1).filter((one) => one === "NODE_ADDRESS_IN_USE")).toHaveLength(1);
});
