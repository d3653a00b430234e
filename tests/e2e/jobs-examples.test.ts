import {
  type RunningServer,
  startServer,
  storeSettings,
} from "@tenure/testing/fleet/running-server";
import { type RunningProcess, startProcess } from "@tenure/testing/processes/process";
import { createDatabase, type TestDatabase } from "@tenure/testing/stores/database";
import { type RedisServer, startRedis } from "@tenure/testing/stores/redis";
import { stores } from "@tenure/testing/stores/stores";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";

// Real processes on a busy machine: each start may take many times its second.
vi.setConfig({ testTimeout: 180_000 });

const example = (file: string, env: Record<string, string>, args: string[] = []): RunningProcess =>
  startProcess({ command: process.execPath, args: [`examples/${file}`, ...args], env });

describe("the examples", () => {
  let database: TestDatabase;
  let redis: RedisServer;
  beforeAll(async () => {
    database = await createDatabase(stores().postgresAdminUri);
    redis = await startRedis();
  });
  afterAll(async () => {
    await redis?.discard();
    await database?.drop();
  });

  test("two-instances: a job goes from b to a and back", async () => {
    const env = { REDIS_URL: redis.url, POSTGRES_URI: database.uri, A_PORT: "0", B_PORT: "0" };
    const running = example("two-instances/main.js", env);
    expect({ ...(await running.exited), said: running.stderr() }).toMatchObject({ code: 0 });
    const said = running.stdout();
    for (const line of ["worker connected to a", "session connected to b", "it works"])
      expect(said).toContain(line);
    expect(said).toMatch(/DISPATCHED.*ACCEPTED.*RUNNING.*job_result/s);
  });

  test("two-instances says what it needs where there is no Redis", async () => {
    const running = example("two-instances/main.js", { PATH: "/nowhere" });
    expect(await running.exited).toMatchObject({ code: 1 });
    expect(running.stderr()).toBe(
      "Two instances meet in Redis: install redis-server, or set REDIS_URL.",
    );
  });

  test("echo-worker answers the sender, as two deployments would", async () => {
    const server: RunningServer = await startServer({
      env: storeSettings({ postgresUri: database.uri }),
    });
    const env = { TENURE_URL: server.url };
    const workers = ["one", "two"].map((id) =>
      example("echo-worker/main.js", {
        ...env,
        TENURE_DEPLOYMENT_ID: id,
        TENURE_FENCING_TOKEN: "7",
      }),
    );
    for (const worker of workers) await worker.waitForLine(/is connected to/, 60_000);
    const sender = example("echo-worker/send.js", env, ["30", "60"]);
    expect({ ...(await sender.exited), said: sender.stdout() }).toMatchObject({ code: 0 });
    expect(sender.stdout()).toMatch(/answered by \w{8} \d+, \w{8} \d+; 0 failed/);
    for (const worker of workers) expect(await worker.stop()).toEqual({ code: 0, signal: null });
    await server.stop();
  });
});
