import { execFileSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { cpSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { scratchDirectory } from "@tenure/testing/scratch";
import { createDatabase } from "@tenure/testing/stores/database";
import { startPgBouncer } from "@tenure/testing/stores/pgbouncer";
import { type PostgresServer, startPostgres } from "@tenure/testing/stores/postgres";
import { stores } from "@tenure/testing/stores/stores";
import { until } from "@tenure/testing/until";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { openApp, type TestApp } from "../../testing/apps.ts";

// A copy of the files has the system identifier and the timeline of the original: only a witness outside notices it.

const UNCONFIRMED = { state: "unconfirmed", reason: "older than nonces that were given out" };
const SIGNER = "copied";
const allocate = async (app: TestApp) => {
  const path = `/api/v1/signers/${SIGNER}/nonces`;
  const { body } = await app.ask("POST", path, { request_id: randomUUID() });
  return body.nonce ?? body.error.details.reason;
};
const allocateMany = async (app: TestApp, count: number) => {
  const numbers = [];
  for (let k = 0; k < count; k++) numbers.push(await allocate(app));
  return numbers;
};
/** The first answer of Postgres itself, once the broken connections are gone. */
const allocateAgain = async (app: TestApp) =>
  (
    await until(
      async () => {
        const answer = await allocate(app);
        return typeof answer === "number" || answer === "timeline" ? { answer } : false;
      },
      { what: "an answer of Postgres" },
    )
  ).answer;
const timelineOf = async (app: TestApp) =>
  (await app.ask("GET", "/health/ready")).body.nonces.timeline;

describe("a Postgres whose files are put back", () => {
  const directory = scratchDirectory("restored-copy");
  const data = join(directory, "data");
  const copy = join(directory, "copy");
  let postgres: PostgresServer;
  beforeAll(async () => {
    postgres = await startPostgres({ directory });
  });
  afterAll(() => postgres.discard());

  async function takeCopy(): Promise<void> {
    await postgres.stop();
    rmSync(copy, { recursive: true, force: true });
    cpSync(data, copy, { recursive: true });
    await postgres.start();
  }
  async function putBack(): Promise<void> {
    await postgres.kill("immediate");
    rmSync(data, { recursive: true });
    cpSync(copy, data, { recursive: true });
    execFileSync("chown", ["-R", `--reference=${join(directory, "password")}`, data]);
    execFileSync("chmod", ["700", data]);
    await postgres.start();
  }
  const openDatabase = async () => (await createDatabase(postgres.uri())).uri;
  async function run(uri: string, ...statements: string[]): Promise<void> {
    const client = new pg.Client({ connectionString: uri });
    await client.connect();
    for (const statement of statements) await client.query(statement);
    await client.end();
  }

  describe("from a copy that lacks the last numbers", () => {
    const redis = {
      TENURE_SCHEDULER_PHASE2_ENABLED: "true",
      TENURE_SCHEDULER_PHASE2_REDIS_URL: stores().redisUrl,
      TENURE_SCHEDULER_PHASE2_REDIS_KEY_PREFIX: `copy-${randomUUID()}`,
    };
    const file = { TENURE_NONCE_WITNESS_FILE: join(scratchDirectory("witness"), "w.json") };
    const uris: Record<"running" | "idle" | "redis" | "file" | "none", string> = {} as never;
    let running: TestApp;
    let idle: TestApp;

    beforeAll(async () => {
      for (const name of ["running", "idle", "redis", "file", "none"] as const)
        uris[name] = await openDatabase();
      running = await openApp(uris.running);
      idle = await openApp(uris.idle);
      const others = [
        await openApp(uris.redis, redis),
        await openApp(uris.file, file),
        await openApp(uris.none),
      ];
      const all = [running, idle, ...others];
      for (const app of all) expect(await allocateMany(app, 3)).toEqual([0, 1, 2]);
      await takeCopy();
      for (const app of all) expect(await allocateAgain(app)).toBe(3);
      expect(await allocateMany(running, 4)).toEqual([4, 5, 6, 7]);
      await Promise.all(others.map((app) => app.stop()));
      await putBack();
    }, 120_000);
    afterAll(() => Promise.all([running.stop(), idle.stop()]));

    test("I9: a server that runs on gives no number out twice, until an operator has confirmed", async () => {
      expect(await allocateAgain(running)).toBe("timeline");
      expect(await timelineOf(running)).toEqual(UNCONFIRMED);
      await running.ask("PUT", `/api/v1/signers/${SIGNER}`, { next_nonce: 8 });
      await running.ask("POST", "/api/v1/cluster/confirm-timeline");
      expect(await allocate(running)).toBe(8);
    });

    test("it is noticed without a request, and what is written later does not hide it", async () => {
      await until(async () => (await timelineOf(idle)).state === "unconfirmed", {
        what: "the refusal without a request",
      });
      const filler = "create table filler as select repeat('x', 500) from generate_series(1, 5000)";
      await run(uris.idle, filler, "checkpoint");
      const another = await openApp(uris.idle);
      expect([await allocate(idle), await allocate(another)]).toEqual(["timeline", "timeline"]);
      await another.stop();
    });

    test.for([
      ["Redis", "redis", redis],
      ["nonce.witness_file", "file", file],
    ] as const)("%s remembers for a server that was restarted too", async ([, name, env]) => {
      const app = await openApp(uris[name], env);
      expect(await allocate(app)).toBe("timeline");
      expect(await timelineOf(app)).toEqual(UNCONFIRMED);
      await app.stop();
    });

    test("without a witness a restarted server cannot notice it, as docs/nonces.md says", async () => {
      const app = await openApp(uris.none);
      expect(await allocate(app)).toBe(3);
      await app.stop();
    });
  });

  test("a crash of Postgres is no reason to refuse; a promoted standby that was behind is (I9)", async () => {
    const { name, uri } = await createDatabase(postgres.uri());
    // Behind a pooler: the instance's own connections survive the failover.
    const bouncer = await startPgBouncer({ postgres, mode: "transaction" });
    onTestFinished(() => bouncer.discard());
    const app = await openApp(bouncer.uri(name));
    expect(await allocateMany(app, 4)).toEqual([0, 1, 2, 3]);
    await postgres.kill("immediate");
    await postgres.start();
    expect(await allocateAgain(app)).toBe(4);
    expect(await timelineOf(app)).toEqual({ state: "confirmed" });
    await takeCopy();
    expect(await allocateAgain(app)).toBe(5);
    expect(await allocateMany(app, 4)).toEqual([6, 7, 8, 9]);
    writeFileSync(join(copy, "standby.signal"), "");
    await putBack();
    await run(uri, "select pg_promote()");
    expect(await allocateAgain(app)).toBe("timeline");
    expect(await timelineOf(app)).toEqual({ state: "unconfirmed", reason: "another timeline" });
    await app.stop();
  }, 120_000);
});

test("I9: the embedded store put back from a copy is refused by its witness file", async () => {
  const directory = scratchDirectory("restored-embedded");
  const env = {
    TENURE_SERVER_DATA_DIR: join(directory, "data"),
    TENURE_NONCE_WITNESS_FILE: join(directory, "witness.json"),
  };
  async function run(): Promise<unknown[]> {
    const app = await openApp("", env);
    const answer = [await allocate(app), await timelineOf(app)];
    await app.stop();
    return answer;
  }
  expect(await run()).toEqual([0, { state: "confirmed" }]);
  cpSync(join(directory, "data"), join(directory, "copy"), { recursive: true });
  expect(await run()).toEqual([1, { state: "confirmed" }]);
  rmSync(join(directory, "data"), { recursive: true });
  cpSync(join(directory, "copy"), join(directory, "data"), { recursive: true });
  expect(await run()).toEqual(["timeline", UNCONFIRMED]);
}, 120_000);
