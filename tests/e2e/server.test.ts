import { closeSync, openSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import {
  READY_LINE,
  type RunningServer,
  startServer,
  storeSettings,
} from "@tenure/testing/fleet/running-server";
import {
  type Exit,
  startProcess,
  startTenure,
  type TenureOptions,
} from "@tenure/testing/processes/process";
import { repositoryRoot } from "@tenure/testing/repository";
import { scratchDirectory } from "@tenure/testing/scratch";
import { createDatabase } from "@tenure/testing/stores/database";
import { type PostgresServer, startPostgres } from "@tenure/testing/stores/postgres";
import { startRedis } from "@tenure/testing/stores/redis";
import { stores } from "@tenure/testing/stores/stores";
import { Client } from "pg";
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from "vitest";

// Real processes on a busy machine: each start may take many times its two seconds.
vi.setConfig({ testTimeout: 90_000 });

describe("a server that starts", () => {
  test("prints one line on stdout with a URL that answers; its logs are JSON on stderr", async () => {
    const { server } = await startOnPostgres();
    expect(server.stdout()).toMatch(READY_LINE);
    expect(await server.health()).toMatchObject({ code: 200, status: "ready", down: [] });
    const events = logEvents(server);
    expect(events).toContain("schema.migrated");
    expect(events.at(-1)).toBe("instance.started");
  });

  test("lists the others, and says what several instances without Redis share", async () => {
    const { server: first, env } = await startOnPostgres({ env: named("one") });
    const second = await startServer({ env: { ...env, ...named("two") } });
    onTestFinished(async () => void (await second.stop()));
    for (const server of [first, second]) {
      const { body } = await server.get("/api/v1/cluster");
      expect(body).toMatchObject({
        instances: [
          { instance_id: "one", url: first.url, live: true },
          { instance_id: "two", url: second.url, live: true },
        ],
      });
    }
    expect(logEvents(second)).toContain("instance.alone-with-jobs");
  });

  test("warns about a Redis that keeps nothing, and uses it", async () => {
    const redis = await startRedis({ conf: { appendonly: "no" } });
    onTestFinished(() => redis.discard());
    const { server } = await startOnPostgres({ env: storeSettings({ redisUrl: redis.url }) });
    expect(server.stderr()).toContain("Redis runs without AOF");
    expect((await server.health()).code).toBe(200);
  });
});

describe("a server that is told to stop", () => {
  test.each([
    "SIGTERM",
    "SIGINT",
  ] as const)("by %s is off the list and ends with 0, with clients still connected", async (signal) => {
    const { server, env } = await startOnPostgres();
    const idle = await fetch(`${server.url}/health/live`); // kept alive, not read
    const { body } = await server.get("/api/v1/cluster");
    expect((body as { instances: unknown[] }).instances).toHaveLength(1);
    const stoppedMs = performance.now();
    expect(await end(server, signal)).toEqual({ code: 0, signal: null });
    expect(performance.now() - stoppedMs).toBeLessThan(20_000);
    expect(logEvents(server).slice(-2)).toEqual(["instance.stopping", "instance.stopped"]);
    expect(await countInstances(env)).toBe(0);
    await idle.body?.cancel().catch(() => {});
  });

  test("ends with 0 although something in its process stays open", async () => {
    const NODE_OPTIONS = "--import=data:text/javascript,setInterval(()=>{},1e3)";
    const { server } = await startOnPostgres({ env: { NODE_OPTIONS } });
    expect(await end(server, "SIGTERM")).toEqual({ code: 0, signal: null });
    expect(logEvents(server).at(-1)).toBe("instance.stopped");
  });

  describe("while its Postgres", () => {
    let postgres: PostgresServer;
    beforeAll(async () => {
      postgres = await startPostgres();
    });
    afterAll(() => postgres.discard());

    test("a server whose store is gone ends in good order", async () => {
      const server = await startOn(postgres);
      await postgres.stop();
      onTestFinished(() => postgres.start());
      expect(await end(server, "SIGTERM")).toEqual({ code: 0, signal: null });
      expect(logEvents(server)).toContain("instance.stopped");
    });

    test("a server whose store is frozen waits for it, and a second signal ends it at once", async () => {
      const server = await startOn(postgres);
      await postgres.freeze();
      onTestFinished(() => postgres.thaw());
      process.kill(server.pid, "SIGTERM");
      await server.waitForLine(/instance\.stopping/);
      const early = await Promise.race([server.exited, wait(200)]);
      expect(early, "it waits for Postgres").toBeUndefined();
      const insistedMs = performance.now();
      expect(await end(server, "SIGTERM")).toEqual({ code: 1, signal: null });
      expect(performance.now() - insistedMs).toBeLessThan(10_000);
    });
  });
});

describe("a server that cannot start says why in one sentence, without a stack", () => {
  test("the port is taken", async () => {
    const { server, env } = await startOnPostgres();
    const { port } = new URL(server.url);
    expect(await refusal(["--port", port], { env })).toBe(
      `tenure could not start: port ${port} on 127.0.0.1 is in use; choose another with --port (0 picks a free one)`,
    );
    expect((await server.health()).code).toBe(200);
  });

  test("the data directory is in use", async () => {
    const dataDir = scratchDirectory("taken");
    const holder = startProcess({
      command: process.execPath,
      args: ["--input-type=module", "-e", holdDirectory(dataDir)],
    });
    onTestFinished(async () => void (await holder.kill9()));
    await holder.waitForLine(/^held$/);
    expect(await refusal(["--port", "0"], { dataDir })).toBe(
      `tenure could not start: the data directory ${dataDir} is in use by another server (pid ${holder.pid}); give each its own`,
    );
  });

  test("the data directory cannot be made", async () => {
    const sentence = await refusal(["--port", "0"], { dataDir: "/dev/null/data" });
    expect(sentence).toMatch(/^tenure could not start: .*\/dev\/null\/data/);
  });

  test.each([
    [
      "nobody listens there",
      "postgres://u:s3cret@127.0.0.1:1/x",
      /^tenure could not start: postgres is down \(.*ECONNREFUSED.*\)$/,
    ],
    ["it is not a URI", "127.0.0.1:5432", /server\.postgres_uri must be/],
    ["it is one of something else", "mysql://127.0.0.1/x", /server\.postgres_uri must be/],
  ])("Postgres: %s", async (_, postgresUri, sentence) => {
    const said = await refusal(["--port", "0"], { env: storeSettings({ postgresUri }) });
    expect(said).toMatch(sentence);
    expect(said).not.toContain("s3cret");
  });

  test("Postgres: there is no such database, or the password is wrong", async () => {
    const uri = new URL(stores().postgresAdminUri);
    uri.pathname = "/no_such";
    expect(await refusalOf(uri.href)).toMatch(/database "no_such" does not exist\)$/);
    uri.password = "wrong-s3cret";
    const said = await refusalOf(uri.href);
    expect(said).toMatch(/password authentication failed/);
    expect(said).not.toContain("wrong-s3cret");
  });

  test("Postgres may lose acknowledged commits: synchronous_commit is off", async () => {
    const database = await newDatabase();
    await sql(database.uri, `alter database "${database.name}" set synchronous_commit = off`);
    expect(await refusalOf(database.uri)).toContain("synchronous_commit = off");
  });

  test("Postgres may lose acknowledged commits: fsync is off", async () => {
    const postgres = await startPostgres({ settings: { fsync: "off" } });
    onTestFinished(() => postgres.discard());
    expect(await refusalOf(postgres.uri())).toContain("fsync = off");
  });

  test("Postgres is a standby", async () => {
    const postgres = await startPostgres();
    onTestFinished(() => postgres.discard());
    const [row] = await sql(postgres.uri(), "select current_setting('data_directory') as path");
    await postgres.stop();
    closeSync(openSync(join(String(row?.path), "standby.signal"), "w", 0o644));
    await postgres.start();
    expect(await refusalOf(postgres.uri())).toContain("Postgres is in recovery (a standby)");
  });

  test("Redis drops keys when it is full", async () => {
    const redis = await startRedis({ conf: { "maxmemory-policy": "allkeys-lru" } });
    onTestFinished(() => redis.discard());
    expect(await refusalOf((await newDatabase()).uri, redis.url)).toBe(
      "tenure could not start: Redis has maxmemory-policy allkeys-lru: it would drop jobs in silence; set noeviction",
    );
  });

  test("other machines could reach it and nobody would be asked who he is", async () => {
    const said = await refusal(["--port", "0"], { env: { TENURE_SERVER_HOST: "0.0.0.0" } });
    expect(said).toContain("non-loopback bind without auth");
  });

  test("something fails after it had entered the list: it leaves it and ends", async () => {
    const { server, env } = await startOnPostgres();
    await server.stop();
    await sql(String(env.TENURE_SERVER_POSTGRES_URI), "drop table event cascade");
    const said = await refusal(["--port", "0"], { env });
    expect(said).toMatch(/^tenure could not start: relation "event" does not exist$/);
    expect(await countInstances(env)).toBe(0);
  });

  test("a flag does not exist: the nearest that does is named, and the exit code is 2", async () => {
    const run = startTenure(["server", "--prot", "0"]);
    expect(await run.exited).toEqual({ code: 2, signal: null });
    expect(run.stderr()).toMatch(/unknown option '--prot'.*\n.*--port/);
    expect(run.stderr()).not.toMatch(STACK);
  });

  test("a port is no number", async () => {
    expect(await refusal(["--port", "http"], {})).toMatch(/--port: server\.port must be/);
  });
});

const STACK = /^\s+at .+:\d+/m;

const named = (instanceId: string): Record<string, string> => ({
  TENURE_SCHEDULER_PHASE2_INSTANCE_ID: instanceId,
});

async function newDatabase() {
  const database = await createDatabase(stores().postgresAdminUri);
  onTestFinished(() => database.drop());
  return database;
}

/** A server on a database of its own, stopped when the test has ended. */
async function startOnPostgres({ env = {} }: { env?: Record<string, string> } = {}) {
  const { uri: postgresUri } = await newDatabase();
  const settings = { ...storeSettings({ postgresUri }), ...env };
  const server = await startServer({ env: settings });
  onTestFinished(async () => void (await server.stop()));
  return { server, env: settings };
}

async function startOn(postgres: PostgresServer): Promise<RunningServer> {
  const server = await startServer({ env: storeSettings({ postgresUri: postgres.uri() }) });
  onTestFinished(async () => void (await server.kill9()));
  return server;
}

async function end(server: RunningServer, signal: "SIGTERM" | "SIGINT"): Promise<Exit> {
  process.kill(server.pid, signal);
  return server.exited;
}

/** What it says on stderr besides its logs, when it ends with 1 without ever being ready. */
async function refusal(args: string[], options: TenureOptions): Promise<string> {
  const run = startTenure(["server", ...args], options);
  const exit = await run.exited;
  expect({ ...exit, stdout: run.stdout() }).toEqual({ code: 1, signal: null, stdout: "" });
  expect(run.stderr()).not.toMatch(STACK);
  const sentences = run
    .stderr()
    .split("\n")
    .filter((line) => !line.startsWith("{"));
  expect(sentences).toHaveLength(1);
  return sentences[0] ?? "";
}

const refusalOf = (postgresUri: string, redisUrl?: string): Promise<string> =>
  refusal(["--port", "0"], {
    env: storeSettings({ postgresUri, ...(redisUrl && { redisUrl }) }),
  });

function logEvents(server: { stderr(): string }): string[] {
  const lines = server
    .stderr()
    .split("\n")
    .filter((line) => line !== "");
  return lines.map((line) => (JSON.parse(line) as { event: string }).event);
}

async function sql(uri: string, text: string): Promise<Record<string, unknown>[]> {
  const client = new Client({ connectionString: uri });
  await client.connect();
  try {
    return (await client.query<Record<string, unknown>>(text)).rows;
  } finally {
    await client.end();
  }
}

async function countInstances(env: Record<string, string>): Promise<number> {
  const [row] = await sql(
    String(env.TENURE_SERVER_POSTGRES_URI),
    "select count(*)::int as count from instance",
  );
  return Number(row?.count);
}

function holdDirectory(dataDir: string): string {
  const file = join(repositoryRoot, "packages/server/dist/store/embedded/directory-lock.js");
  return `
    import { lockDirectory } from ${JSON.stringify(file)};
    if ("release" in lockDirectory(${JSON.stringify(dataDir)})) console.log("held");
    setInterval(() => {}, 1000);`;
}
