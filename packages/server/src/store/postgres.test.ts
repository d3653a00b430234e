import { type AddressInfo, createServer } from "node:net";
import { TenureError } from "@tenure/protocol";
import { type FaultProxy, startProxy } from "@tenure/testing/processes/proxy";
import { until } from "@tenure/testing/until";
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { openServer, type TestDb } from "../../testing/databases.ts";
import type { PostgresStore } from "./db.ts";
import { openPostgres, type PostgresOptions } from "./postgres.ts";
import { sql } from "./sql.ts";

// What only a server over a network does: break, stall, and serve several sessions at once.

let server: TestDb & { uri: string };
beforeAll(async () => {
  server = await openServer();
  await server.db.script("create table entry (id bigserial primary key, note text not null)");
  await server.db.script(
    "create table lease (name text primary key, holder text, until timestamptz)",
  );
});
afterAll(() => server.close());
beforeEach(() => server.db.script("truncate entry, lease"));

function open(options: Partial<PostgresOptions> = {}): PostgresStore {
  const db = openPostgres({ uri: server.uri, ...options });
  onTestFinished(() => db.close());
  return db;
}

async function openThroughProxy(
  options: Partial<PostgresOptions> = {},
): Promise<{ db: PostgresStore; proxy: FaultProxy }> {
  const uri = new URL(server.uri);
  const proxy = await startProxy({ targetPort: Number(uri.port) });
  onTestFinished(() => proxy.stop());
  uri.port = String(proxy.port);
  return { db: open({ uri: uri.href, ...options }), proxy };
}

async function notes(): Promise<string[]> {
  const { rows } = await server.db.query<{ note: string }>(sql`select note from entry order by id`);
  return rows.map(({ note }) => note);
}

/** The outcome is unknown, and the caller is told so. */
async function expectDown(statement: Promise<unknown>, reason: RegExp): Promise<void> {
  const error = await statement.then(
    () => new Error("it succeeded"),
    (refused: unknown) => refused,
  );
  expect(error).toBeInstanceOf(TenureError);
  expect(error).toMatchObject({
    code: "DEPENDENCY_DOWN",
    retryable: true,
    details: { dependency: "postgres", reason: expect.stringMatching(reason) },
  });
}

const mentions = (text: string) => (bytes: Buffer) => bytes.includes(text);

describe("a connection that is ended from the other side", () => {
  test("under a statement: the caller is told, the next statement works", async () => {
    const db = open({ poolMax: 1, statementTimeoutMs: 60_000 });
    const told = expectDown(db.query(sql`select pg_sleep(60), 'nap-1'`), /terminat/);
    await terminate("nap-1");
    await told;
    expect((await db.query(sql`select 1 as one`)).rows).toEqual([{ one: 1 }]);
  });

  test("while idle: the process lives, hears of it, and the next statement works", async () => {
    const errors: unknown[] = [];
    const db = open({ poolMax: 1, onError: (error) => errors.push(error) });
    await db.query(sql`select 'idle-1'`);
    await terminate("idle-1");
    await until(() => errors.length > 0, { what: "the report of the broken connection" });
    expect((await db.query(sql`select 1 as one`)).rows).toEqual([{ one: 1 }]);
  });

  test("in a transaction: nothing of it stays", async () => {
    const db = open({ poolMax: 1, statementTimeoutMs: 60_000 });
    const failed = db.transaction(async (tx) => {
      await tx.query(sql`insert into entry (note) values ('half')`);
      const asleep = tx.query(sql`select pg_sleep(60), 'nap-2'`);
      asleep.catch(() => {});
      await terminate("nap-2");
      await asleep;
    });
    await expectDown(failed, /terminat/);
    expect(await notes()).toEqual([]);
    expect((await db.query(sql`select 1 as one`)).rows).toEqual([{ one: 1 }]);
  });

  test("in the very packet that says it is ready: the caller is told, and the process lives", async () => {
    const port = await startDyingPostgres();
    const db = open({ uri: `postgres://anybody@127.0.0.1:${port}/any` });
    await expectDown(db.query(sql`select 1`), /./);
    await expectDown(db.query(sql`select 1`), /./);
  });

  async function terminate(word: string): Promise<void> {
    const victim = () =>
      server.db.query(sql`
        select pg_terminate_backend(pid) from pg_stat_activity
         where position(${word} in query) > 0 and pid <> pg_backend_pid()`);
    await until(async () => (await victim()).rowCount === 1, { what: `the session of ${word}` });
  }
});

describe("nothing is sent twice", () => {
  test("a statement whose reply is lost ran once, and its caller knows that he does not know", async () => {
    const { db, proxy } = await openThroughProxy();
    const cut = proxy.cutAfter(mentions("reply-lost"));
    await expectDown(db.query(sql`insert into entry (note) values ('reply-lost')`), /./);
    await cut;
    await db.query(sql`insert into entry (note) values ('after')`);
    expect(await notes()).toEqual(["reply-lost", "after"]);
  });

  test("a commit whose reply is lost is not repeated either", async () => {
    const { db, proxy } = await openThroughProxy({ poolMax: 1 });
    const committing = db.transaction(async (tx) => {
      await tx.query(sql`insert into entry (note) values ('committed')`);
      void proxy.cutAfter(mentions("commit"));
    });
    await expectDown(committing, /./);
    expect(await notes()).toEqual(["committed"]);
  });
});

describe("time limits", () => {
  test("a statement over its limit is ended by the server; it did nothing and the session goes on", async () => {
    const overstay = async () => {
      const db = open({ poolMax: 1, statementTimeoutMs: 100 });
      const before = await sessionOf(db);
      const late = db.query(sql`insert into entry (note) select 'late' from pg_sleep(10)`);
      await expectDown(late, /statement timeout/);
      return { before, after: await sessionOf(db) };
    };
    // Where a machine stands still for the second in between, the client's own limit is first: then once more.
    const { before, after } = await until(overstay, { what: "the limit of the server" });
    expect(await notes()).toEqual([]);
    expect(after).toBe(before);
  });

  test("so is one that waits too long for a row somebody has locked", async () => {
    await server.db.query(sql`insert into lease (name, holder) values ('door', 'a')`);
    const db = open({ statementTimeoutMs: 100 });
    await server.db.transaction(async (tx) => {
      await tx.query(sql`update lease set holder = 'b'`);
      await expectDown(db.query(sql`update lease set holder = 'c'`), /timeout/);
    });
    const holders = () => db.query<{ holder: string }>(sql`select holder from lease`);
    expect((await until(holders, { what: "an answer" })).rows).toEqual([{ holder: "b" }]);
  });

  test("a server that says nothing at all is given up soon after, and used again when it answers", async () => {
    const { db, proxy } = await openThroughProxy({ statementTimeoutMs: 100 });
    const answers = () => db.query<{ one: number }>(sql`select 1 as one`);
    await until(answers, { what: "a connection" });
    proxy.blackHole("both");
    const askedMs = performance.now();
    await expectDown(db.query(sql`select 1`), /timeout/);
    expect(performance.now() - askedMs).toBeLessThan(10_000);
    await proxy.heal();
    expect((await until(answers, { what: "an answer" })).rows).toEqual([{ one: 1 }]);
  });
});

describe("a middlebox that forgets idle connections", () => {
  test("costs the next statement a second, and no statement its outcome", async () => {
    const { db, proxy } = await openThroughProxy({ poolMax: 3, probeAfterIdleMs: 0 });
    const nap = sql`select pg_sleep(0.1)`;
    await Promise.all([db.query(nap), db.query(nap), db.query(nap)]);
    expect(proxy.connections).toBe(3);
    proxy.forget();
    const askedMs = performance.now();
    for (const note of ["first", "second", "third", "fourth"])
      await db.query(sql`insert into entry (note) values (${note})`);
    expect(performance.now() - askedMs).toBeLessThan(4_000);
    expect(await notes()).toEqual(["first", "second", "third", "fourth"]);
  });

  test("does not silence a listener for longer than its probe", async () => {
    const { db, proxy } = await openThroughProxy({ probeAfterIdleMs: 500 });
    let heard = 0;
    await db.listen("wake", () => heard++);
    expect(heard).toBe(1);
    proxy.forget();
    const notified = async () => {
      await server.db.query(sql`select pg_notify('wake', '')`);
      return heard > 2;
    };
    await until(notified, { what: "to hear a wake-up again" });
  });

  test("does not keep a store from closing", async () => {
    const uri = new URL(server.uri);
    const proxy = await startProxy({ targetPort: Number(uri.port) });
    onTestFinished(() => proxy.stop());
    uri.port = String(proxy.port);
    const db = openPostgres({ uri: uri.href });
    await db.listen("wake", () => {});
    await db.query(sql`select 1`);
    proxy.forget();
    const before = process.getActiveResourcesInfo().filter((kind) => kind === "TCPSocketWrap");
    const closedMs = performance.now();
    await db.close();
    expect(performance.now() - closedMs).toBeLessThan(5_000);
    const after = process.getActiveResourcesInfo().filter((kind) => kind === "TCPSocketWrap");
    // Both ends of a connection are in this process: the client's two are gone, the proxy's stay.
    expect(before.length - after.length).toBeGreaterThanOrEqual(2);
  });
});

describe("a server that is not there", () => {
  test("is named with the reason, at once, and used when it comes back", async () => {
    const { db, proxy } = await openThroughProxy();
    proxy.refuse();
    const askedMs = performance.now();
    await expectDown(db.query(sql`select 1`), /ECONNREFUSED/);
    expect(performance.now() - askedMs).toBeLessThan(20_000);
    await proxy.heal();
    expect((await db.query(sql`select 1 as one`)).rows).toEqual([{ one: 1 }]);
  });
});

describe("a server that cannot be reached", () => {
  test("because there is no route to it is down, not a bug", async () => {
    // No TCP connection leads to a multicast address: the kernel refuses it without sending anything.
    const db = open({ uri: "postgres://anybody@224.0.0.1:5432/any" });
    await expectDown(db.query(sql`select 1`), /ENETUNREACH/);
  });

  test("because it does not know the database is down: an operator may create it", async () => {
    const uri = new URL(server.uri);
    uri.pathname = "/not_created_yet";
    await expectDown(open({ uri: uri.href }).query(sql`select 1`), /does not exist/);
  });
});

describe("two sessions and one lease", () => {
  test("a rival that waited for the row judges it as it is by then, not as it was", async () => {
    await server.db.query(sql`
      insert into lease (name, holder, until) values ('door', 'a', tenure_now() - interval '1 s')`);
    const take = sql`update lease set holder = 'b' where name = 'door' and until <= tenure_now()`;
    let taking: Promise<{ rowCount: number }> | undefined;
    await server.db.transaction(async (tx) => {
      await tx.query(sql`update lease set until = tenure_now() + interval '1 h'`);
      taking = server.db.query(take);
      await until(waitingForLock, { what: "the rival to wait" });
    });
    expect(await taking).toMatchObject({ rowCount: 0 });
    await server.advance(3_600_001);
    expect(await server.db.query(take)).toMatchObject({ rowCount: 1 });
  });

  test("a row locked by a rival is skipped by whoever says so", async () => {
    await server.db.query(sql`insert into lease (name) values ('a'), ('b')`);
    const next = sql`select name from lease order by name limit 1 for update skip locked`;
    await server.db.transaction(async (tx) => {
      expect((await tx.query(next)).rows).toEqual([{ name: "a" }]);
      expect((await server.db.query(next)).rows).toEqual([{ name: "b" }]);
    });
  });

  async function waitingForLock(): Promise<boolean> {
    const { rows } = await server.db.query(sql`
      select pid from pg_stat_activity
       where datname = current_database() and wait_event_type = 'Lock'`);
    return rows.length > 0;
  }
});

/** Lets everybody in and is shut down in the same breath. */
async function startDyingPostgres(): Promise<number> {
  const message = (type: string, body: Buffer) => {
    const head = Buffer.alloc(5);
    head.write(type);
    head.writeInt32BE(body.length + 4, 1);
    return Buffer.concat([head, body]);
  };
  const welcome = message("R", Buffer.alloc(4));
  const ready = message("Z", Buffer.from("I"));
  const farewell = message("E", Buffer.from("SFATAL\0C57P01\0Mshutting down\0\0"));
  const dying = createServer((socket) => {
    socket.on("error", () => {});
    socket.once("data", () => socket.end(Buffer.concat([welcome, ready, farewell])));
  });
  await new Promise<void>((resolve) => dying.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => void dying.close());
  return (dying.address() as AddressInfo).port;
}

async function sessionOf(db: PostgresStore): Promise<number | undefined> {
  const { rows } = await db.query<{ pid: number }>(sql`select pg_backend_pid() as pid`);
  return rows[0]?.pid;
}
