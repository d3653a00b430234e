import { deploymentsOf, runningStatuses, SLEEPER } from "@tenure/testing/fleet/deployments";
import { startUnit } from "@tenure/testing/fleet/node-unit";
import { startServer, storeSettings } from "@tenure/testing/fleet/running-server";
import { createDatabase, type TestDatabase } from "@tenure/testing/stores/database";
import { stores } from "@tenure/testing/stores/stores";
import { until } from "@tenure/testing/until";
import { afterAll, beforeAll, expect, test, vi } from "vitest";

vi.setConfig({ testTimeout: 240_000 });

let database: TestDatabase;
beforeAll(async () => {
  database = await createDatabase(stores().postgresAdminUri);
});
afterAll(() => database.drop());

// The presence of the former process lasts 45 s, and one that is refused tries again after 15 to 30 s.
const WAITED_FOR_PRESENCE_MS = 40_000;

test("a server and an agent that stop together run their deployment again as soon as both are back", async () => {
  const env = storeSettings({ postgresUri: database.uri });
  const args = ["--log-level", "warn"];
  const former = { server: await startServer({ env, args }) };
  const unit = await startUnit({ name: "only", urls: [former.server.url] });
  const { id } = await deploymentsOf(former.server.url).create({ name: "web", command: SLEEPER });
  const runsAt = (url: string) =>
    until(async () => runningStatuses(await deploymentsOf(url).read(id)).length > 0, {
      deadlineMs: 120_000,
      what: "the deployment to run",
    });
  await runsAt(former.server.url);

  await Promise.all([former.server.stop(), unit.stop()]);
  const startedMs = performance.now();
  const server = await startServer({ env, args });
  const back = await startUnit({ name: "only", urls: [server.url], dataDir: unit.dataDir });
  expect(back.address).toBe(unit.address);
  await runsAt(server.url);
  expect(performance.now() - startedMs).toBeLessThan(WAITED_FOR_PRESENCE_MS);
  await Promise.all([back.stop(), server.stop()]);
});
