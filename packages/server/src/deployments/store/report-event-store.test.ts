import type { DeploymentReport } from "@tenure/protocol";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { DATABASES, openTestDb, type TestDb } from "../../../testing/databases.ts";
import { addDeployment, assign, joinUnit } from "../../../testing/deployments.ts";
import { renewPresence } from "../../membership/store/node-unit-store.ts";
import { sql } from "../../store/sql.ts";
import type { NodeTerm } from "../deployment-row.ts";
import { reportEvent } from "../report-event.ts";
import { appendReportEvent, HOURLY_MAX } from "./report-event-store.ts";
import { recordReport } from "./status-store.ts";

const MINUTE_MS = 60_000;

describe.each(DATABASES)("events of failures on %s", (kind) => {
  let store: TestDb;
  beforeAll(async () => {
    store = await openTestDb(kind);
  });
  afterAll(() => store.close());

  /** As the server does with a report. */
  async function report(node: NodeTerm, said: DeploymentReport): Promise<void> {
    await renewPresence(store.db, [node], 45_000);
    const recorded = await recordReport(store.db, node, said);
    if (!recorded?.current) throw new Error("the report is not current");
    const event = reportEvent({ address: node.address, report: said, recorded });
    if (event) await appendReportEvent(store.db, event, !recorded.was_stable);
  }

  async function crash(
    node: NodeTerm,
    id: string,
    { ranMs = 2_000, generation = 1, last_error = "exited with code 1" } = {},
  ): Promise<void> {
    const of = { deployment_id: id, generation };
    await report(node, { ...of, state: "starting" });
    await report(node, { ...of, state: "running" });
    await store.advance(ranMs);
    await report(node, { ...of, state: "backoff", exit_code: 1, last_error });
  }

  async function eventsOf(subject: string): Promise<string[]> {
    const { rows } = await store.db.query<{ event: string }>(
      sql`select event from event where subject = ${subject} order by id`,
    );
    return rows.map(({ event }) => event);
  }

  test("a crash loop is one event; a child that ran for a minute and then ended is another", async () => {
    const node = await joinUnit(store.db, "loops");
    const { id } = await addDeployment(store.db, { address: node.address });
    for (let times = 0; times < 30; times++) await crash(node, id);
    expect(await eventsOf(id)).toEqual(["deployment.crashed"]);
    await crash(node, id, { ranMs: MINUTE_MS });
    expect(await eventsOf(id)).toEqual(["deployment.crashed", "deployment.crashed"]);
  });

  test("another kind of failure and another term are events of their own", async () => {
    const node = await joinUnit(store.db, "kinds");
    const { id } = await addDeployment(store.db, { address: node.address });
    await crash(node, id);
    const of = { deployment_id: id, generation: 1 };
    for (let times = 0; times < 3; times++) {
      await report(node, { ...of, state: "installing" });
      await report(node, { ...of, state: "failed", last_error: "no such version" });
    }
    expect(await eventsOf(id)).toEqual(["deployment.crashed", "deployment.failed"]);
    await assign(store.db, id, "");
    await assign(store.db, id, node.address);
    await crash(node, id, { generation: 3 });
    expect(await eventsOf(id)).toHaveLength(3);
  });

  test("a daemon that is found missing again and again is one event", async () => {
    const node = await joinUnit(store.db, "daemons");
    const { id } = await addDeployment(store.db, { type: "daemon" });
    const missing = { generation: 0, last_error: "ERR_DAEMON_MISSING: exited with code 1" };
    for (let times = 0; times < 5; times++) await crash(node, id, missing);
    expect(await eventsOf(id)).toEqual(["daemon.missed"]);
  });

  test("a deployment has a budget for an hour, also when each of its children ran for a minute", async () => {
    const node = await joinUnit(store.db, "slow-loop");
    const { id } = await addDeployment(store.db, { address: node.address });
    for (let times = 0; times < 40; times++) await crash(node, id, { ranMs: MINUTE_MS });
    expect(await eventsOf(id)).toHaveLength(HOURLY_MAX.deployment);
    await store.advance(60 * MINUTE_MS);
    await crash(node, id, { ranMs: MINUTE_MS });
    expect(await eventsOf(id)).toHaveLength(HOURLY_MAX.deployment + 1);
  });

  test("a node has one too, however many deployments fail on it", async () => {
    const node = await joinUnit(store.db, "broken-disk");
    const { count } = await failMany(node, HOURLY_MAX.node + 5);
    expect(count).toBe(HOURLY_MAX.node);
  });

  async function failMany(node: NodeTerm, many: number): Promise<{ count: number }> {
    for (let nth = 0; nth < many; nth++) {
      const { id } = await addDeployment(store.db, { address: node.address });
      await report(node, { deployment_id: id, generation: 1, state: "failed", last_error: "full" });
    }
    const { rows } = await store.db.query<{ count: number }>(
      sql`select count(*) as count from event where details ->> 'address' = ${node.address}
             and event = 'deployment.failed'`,
    );
    return rows[0]!;
  }
});
