import { enrolText } from "@tenure/protocol";
import { connectRawNode, createNodeKey, type NodeKey } from "@tenure/testing/fleet/raw-node";
import { connectRawSession } from "@tenure/testing/fleet/raw-session";
import { type FaultProxy, startProxy } from "@tenure/testing/processes/proxy";
import type { TestDatabase } from "@tenure/testing/stores/database";
import { until } from "@tenure/testing/until";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { type Answer, openApp, openAppDatabase, type TestApp } from "../../testing/apps.ts";
import { tokenSha256 } from "../config.ts";
import { openPostgres } from "../store/postgres.ts";
import { sql } from "../store/sql.ts";

const API = "/api/v1";
const ENV = {
  TENURE_TOKENS: "admin:the-first-admin-of-all",
  TENURE_AUTH_PEER_TOKEN: "between-the-instances",
};
const ADMIN = { authorization: "Bearer the-first-admin-of-all" };
const bearer = (secret: string) => ({ authorization: `Bearer ${secret}` });

async function create(app: TestApp, body: object, headers = ADMIN): Promise<Answer> {
  const answer = await app.ask("POST", `${API}/tokens`, body, headers);
  expect(answer).toMatchObject({ status: 200 });
  return answer.body;
}

const write = (app: TestApp, id: string, what: string, body?: object): Promise<Answer> =>
  app.ask("POST", `${API}/tokens/${id}/${what}`, body ?? {}, ADMIN);

const meWith = async (app: TestApp, secret: string): Promise<number> =>
  (await app.ask("GET", `${API}/me`, undefined, bearer(secret))).status;

/** Opens `/stream` and resolves when the server ends it. */
async function openStream(app: TestApp, headers: Record<string, string>) {
  const response = await fetch(`${app.url}${API}/stream`, { headers });
  expect(response.status).toBe(200);
  const reader = response.body!.getReader();
  await reader.read();
  const drain = async () => {
    while (!(await reader.read()).done);
  };
  return { ended: drain().catch(() => {}) };
}

describe.each(["postgres", "embedded"])("tokens of the table: %s", (kind) => {
  let database: TestDatabase | undefined;
  let apps: TestApp[];
  let app: TestApp;
  beforeAll(async () => {
    database = kind === "postgres" ? await openAppDatabase() : undefined;
    const uri = database?.uri ?? "";
    apps = [await openApp(uri, ENV), ...(database ? [await openApp(uri, ENV)] : [])];
    app = apps[0]!;
  });
  afterAll(async () => {
    await Promise.all(apps.map((one) => one.stop()));
    await database?.drop();
  });

  test("a token is good at every instance at once, and no row or answer has its secret", async () => {
    const made = await create(app, { name: "ci", role: "viewer" });
    expect(made).toMatchObject({ name: "ci", tenant: "default", state: "live", expires_at: null });
    expect(made.secret).toMatch(/^tnr_[A-Za-z0-9_-]{43}$/);
    for (const one of apps) expect(await meWith(one, made.secret)).toBe(200);
    const list = await app.ask("GET", `${API}/tokens?name=ci`, undefined, ADMIN);
    expect(list.body.items).toMatchObject([{ id: made.id, created_by: "TENURE_TOKENS:1" }]);
    expect(JSON.stringify(list.body)).not.toContain(made.secret.slice(4));
    expect(JSON.stringify(list.body)).not.toContain(tokenSha256(made.secret));
    const audit = await app.ask("GET", `${API}/audit?action=token.create`, undefined, ADMIN);
    expect(JSON.stringify(audit.body)).toContain(made.id);
    expect(JSON.stringify(audit.body)).not.toContain(made.secret.slice(4));
  });

  test("revoking closes what is open with 4401, at every instance", async () => {
    const made = {
      node: await create(app, { name: "n", role: "node" }),
      session: await create(app, { name: "s", role: "session" }),
      viewer: await create(app, { name: "v", role: "viewer" }),
    };
    const open = await Promise.all(
      apps.map(async (one) => {
        const node = await connectRawNode({ url: one.url, headers: bearer(made.node.secret) });
        await node.register();
        const session = await connectRawSession({ url: one.url });
        await session.init({ token: made.session.secret });
        const stream = await openStream(one, bearer(made.viewer.secret));
        const signedIn = await fetch(`${one.url}${API}/login`, {
          method: "POST",
          headers: { origin: one.url, "content-type": "application/json" },
          body: JSON.stringify({ token: made.viewer.secret }),
        });
        const cookie = signedIn.headers.get("set-cookie")!.split(";")[0]!;
        return { node, session, stream, page: await openStream(one, { cookie }), cookie, one };
      }),
    );
    const beganMs = performance.now();
    for (const { id } of Object.values(made))
      expect((await write(app, id, "revoke")).body).toMatchObject({ state: "revoked" });
    for (const { node, session, stream, page, cookie, one } of open) {
      expect(await node.closed).toMatchObject({ code: 4401 });
      expect(await session.closed).toMatchObject({ code: 4401 });
      await stream.ended;
      await page.ended;
      expect((await one.ask("GET", `${API}/me`, undefined, { cookie })).status).toBe(401);
    }
    // 2 s, on a machine that does nothing else; tests/prove measures it.
    expect(performance.now() - beganMs).toBeLessThan(10_000);
    for (const one of apps) expect(await meWith(one, made.viewer.secret)).toBe(401);
    const again = await write(app, made.viewer.id, "revoke");
    expect(again).toMatchObject({ status: 200, body: { state: "revoked" } });
  });

  test("an end in time closes what is open, and the secret is refused", async () => {
    const made = await create(app, { name: "short", role: "node", expires_in_seconds: 4 });
    const node = await connectRawNode({ url: app.url, headers: bearer(made.secret) });
    await node.register();
    const beganMs = performance.now();
    expect(await node.closed).toMatchObject({ code: 4401 });
    expect(performance.now() - beganMs).toBeLessThan(15_000);
    const late = await connectRawNode({ url: app.url, headers: bearer(made.secret) });
    void late.register().catch(() => {});
    expect(await late.closed).toMatchObject({ code: 4401 });
  });

  test("what an ended token still sends is not handled", async () => {
    const made = await create(app, { name: "stubborn", role: "session" });
    const session = await connectRawSession({ url: app.url });
    await session.init({ token: made.secret });
    // It never answers the close frame.
    session.socket.close = () => {};
    (
      session.socket as unknown as { _receiver: { removeAllListeners(name: string): void } }
    )._receiver.removeAllListeners("conclude");
    await write(app, made.id, "revoke");
    session.socket.send(
      JSON.stringify({
        ...{ type: "job_submit", request_id: "late", pool: "p", payload: 1, pending_ms: 60_000 },
      }),
    );
    await until(() => session.socket.readyState === session.socket.CLOSED, { what: "the end" });
    const jobs = await app.ask("GET", `${API}/jobs`, undefined, ADMIN);
    expect(JSON.stringify(jobs.body)).not.toContain("late");
  });

  test("a rotated secret ends the former one, at once or after its grace", async () => {
    const made = await create(app, { name: "turning", role: "viewer" });
    const graceful = (await write(app, made.id, "rotate", { grace_seconds: 2 })).body;
    expect(graceful.secret).not.toBe(made.secret);
    for (const one of apps)
      expect([await meWith(one, made.secret), await meWith(one, graceful.secret)]).toEqual([
        200, 200,
      ]);
    await until(async () => (await meWith(app, made.secret)) === 401, {
      what: "the end of the grace",
    });
    const hard = (await write(app, made.id, "rotate")).body;
    for (const one of apps) {
      await until(async () => (await meWith(one, graceful.secret)) === 401, { what: "its end" });
      expect(await meWith(one, hard.secret)).toBe(200);
    }
    await write(app, made.id, "revoke");
    expect((await write(app, made.id, "rotate")).status).toBe(409);
  });

  test.each([
    [{ name: "x", role: "peer" }],
    [{ name: "x", role: "viewer", scopes: { pools: ["a"] } }],
    [{ name: "x", role: "node", scopes: { signers: ["eip155:1:*"] } }],
    [{ name: "x", role: "node", scopes: { adresses: [] } }],
    [{ name: "x", role: "session", tenant: "*" }],
    [{ name: "x", role: "viewer", join: true }],
    [{ name: "x", role: "node", join: true, expires_in_seconds: 86_401 }],
    [{ name: "no name", role: "viewer" }],
    [{ name: "x", role: "viewer", expires_in_seconds: 0 }],
  ])("%j is not a token", async (body) => {
    expect((await app.ask("POST", `${API}/tokens`, body, ADMIN)).status).toBe(400);
  });

  test("scopes limit the node", async () => {
    const key = createNodeKey();
    const scopes = { addresses: [key.address], labels: { zone: "vault" }, node_name: "test node" };
    expect(
      (await app.ask("POST", `${API}/tokens`, { name: "x", role: "node", scopes }, ADMIN)).status,
    ).toBe(400);
    const { secret } = await create(app, {
      ...{ name: "limited", role: "node" },
      scopes: { ...scopes, node_name: "web-1" },
    });
    const join = async (withKey: NodeKey, name: string) => {
      const node = await connectRawNode({ url: app.url, key: withKey, headers: bearer(secret) });
      onTestFinished(() => void node.socket.terminate());
      const registered = node.register({ name, token_labels: true });
      return Promise.race([registered, node.closed]);
    };
    expect(await join(createNodeKey(), "web-1")).toMatchObject({ code: 4403 });
    expect(await join(key, "web-2")).toMatchObject({ code: 4403 });
    expect(await join(key, "web-1")).toMatchObject({ labels: { "token/zone": "vault" } });
  });

  describe("join tokens", () => {
    const enrol = (
      at: TestApp,
      join: string,
      {
        key = createNodeKey(),
        secret = "s",
        signedBy = key,
        name = "web-7",
      }: {
        key?: NodeKey;
        secret?: string;
        signedBy?: NodeKey;
        name?: string;
      } = {},
    ) => {
      const { address } = key;
      const token_sha256 = tokenSha256(secret);
      const signature = signedBy.sign(
        enrolText({ join_sha256: tokenSha256(join), address, token_sha256 }),
      );
      const body = { join_token: join, address, name, token_sha256, signature };
      return at.ask("POST", `${API}/enrol`, body);
    };
    const newSecret = () =>
      `tnr_${Buffer.from(crypto.getRandomValues(new Uint8Array(32))).toString("base64url")}`;

    test("one of several nodes at once gets in, and it gets its answer again", async () => {
      const join = await create(app, {
        ...{ name: "rack", role: "node", join: true },
        scopes: { labels: { rack: "7" } },
      });
      expect(join.secret).toMatch(/^tnrj_/);
      expect(await meWith(app, join.secret)).toBe(401);
      const nodes = Array.from({ length: 8 }, () => ({
        key: createNodeKey(),
        secret: newSecret(),
      }));
      const answers = await Promise.all(
        nodes.map((node, at) => enrol(apps[at % apps.length]!, join.secret, node)),
      );
      expect(answers.filter(({ status }) => status === 200)).toHaveLength(1);
      for (const { body } of answers.filter(({ status }) => status !== 200))
        expect(body.error.code).toBe("JOIN_TOKEN_USED");
      const winner = nodes[answers.findIndex(({ status }) => status === 200)]!;
      for (const one of apps) {
        const again = await enrol(one, join.secret, winner);
        expect(again).toMatchObject({ status: 200, body: { labels: { rack: "7" } } });
        // The same node with another secret is another enrolment.
        const other = await enrol(one, join.secret, { ...winner, secret: newSecret() });
        expect(other.body.error.code).toBe("JOIN_TOKEN_USED");
      }
      const node = await connectRawNode({
        url: app.url,
        key: winner.key,
        headers: bearer(winner.secret),
      });
      expect(await node.register({ token_labels: true })).toMatchObject({
        labels: { "token/rack": "7" },
      });
      await node.close();
      const thief = await connectRawNode({ url: app.url, headers: bearer(winner.secret) });
      void thief.register().catch(() => {});
      expect(await thief.closed).toMatchObject({ code: 4403 });
      const { items } = (await app.ask("GET", `${API}/tokens`, undefined, ADMIN)).body;
      expect(items.find(({ id }: Answer) => id === join.id)).toMatchObject({
        ...{ state: "used", used_by: winner.key.address },
      });
    });

    test("a join token that is unknown, over, of another name or presented by another key is refused", async () => {
      const scopes = { node_name: "web-1" };
      const join = await create(app, { name: "web-1", role: "node", join: true, scopes });
      const status = async (...given: Parameters<typeof enrol>) => (await enrol(...given)).status;
      const unknown = `tnrj_${"A".repeat(43)}`;
      // 503 while a busy machine takes too long to read the table.
      await until(async () => (await status(app, unknown)) === 401, { what: "the refusal" });
      expect(await status(app, "the-first-admin-of-all")).toBe(401);
      expect(await status(app, join.secret, { name: "web-2" })).toBe(403);
      expect(await status(app, join.secret, { signedBy: createNodeKey() })).toBe(401);
      await write(app, join.id, "revoke");
      expect(await status(app, join.secret, { name: "web-1" })).toBe(401);
      const short = await create(app, {
        ...{ name: "s", role: "node", join: true, expires_in_seconds: 1 },
      });
      const late = () => enrol(app, short.secret, { signedBy: createNodeKey() });
      await until(async () => (await late()).body.error.message.includes("expired"), {
        what: "its end",
      });
    });
  });
});

describe("on a server", () => {
  let database: TestDatabase;
  let proxy: FaultProxy;
  let app: TestApp;
  beforeAll(async () => {
    database = await openAppDatabase();
    const { hostname, port } = new URL(database.uri);
    proxy = await startProxy({ targetHost: hostname, targetPort: Number(port) });
    const far = new URL(database.uri);
    far.hostname = proxy.host;
    far.port = String(proxy.port);
    app = await openApp(far.href, ENV);
  });
  afterAll(async () => {
    await proxy.heal();
    await app.stop();
    proxy.stop();
    await database.drop();
  });
  const inDatabase = async <T = object>(statement: ReturnType<typeof sql>): Promise<T[]> => {
    const db = openPostgres({ uri: database.uri, poolMax: 1 });
    const { rows } = await db.query<T>(statement);
    await db.close();
    return rows;
  };

  const rowOf = async (id: string) =>
    (
      await inDatabase<{ last_used_at: Date | null; version: number }>(
        sql`select last_used_at, version from token where id = ${id}`,
      )
    )[0];

  test("rows that were written by hand grant nothing unless they are valid, and stop nothing", async () => {
    const good = await create(app, { name: "good", role: "viewer" });
    const secrets = Array.from({ length: 9 }, (_, at) => `tnr_${String(at).repeat(43)}`);
    const [a, b, c, d, e, f, g, h, i] = secrets.map(tokenSha256);
    await inDatabase(sql`
      insert into token (name, role, tenant, scopes, sha256, expires_at, is_join) values
        ('a', 'emperor', 'default', '{}', ${a}, null, false),
        ('b', 'peer', 'default', '{}', ${b}, null, false),
        ('c', 'admin', 'default', '{"pools": ["x"]}', ${c}, null, false),
        ('d', 'admin', 'default', '[]', ${d}, null, false),
        ('e', 'viewer', 'default', '{"role": "admin"}', ${e}, null, false),
        ('f', 'viewer', 'default', '{}', ${f}, '-infinity', false),
        ('g', 'admin', 'default', '{}', ${g}, null, true),
        ('h h', 'admin', 'no tenant', '{"tenants": 5}', ${h}, 'infinity', false),
        ('i', 'viewer', 'default', '{}', ${i}, 'infinity', false)`);
    await until(async () => (await meWith(app, secrets[8]!)) === 200, { what: "the valid row" });
    for (const secret of secrets.slice(0, 8)) expect(await meWith(app, secret)).toBe(401);
    expect(await meWith(app, good.secret)).toBe(200);
    const { body } = await app.ask("GET", `${API}/tokens?limit=500`, undefined, ADMIN);
    const states = Object.fromEntries(body.items.map(({ name, state }: Answer) => [name, state]));
    expect(states).toMatchObject({ a: "invalid", e: "invalid", f: "expired", i: "live" });
    // A row that is deleted, or changed with triggers off, is followed too.
    await inDatabase(sql`delete from token where name = 'i'`);
    await until(async () => (await meWith(app, secrets[8]!)) === 401, { what: "the deletion" });
  });

  test("with Postgres away known tokens and sessions go on, and unknown tokens get 503", {
    timeout: 60_000,
  }, async () => {
    const known = await create(app, { name: "known", role: "viewer" });
    const short = await create(app, { name: "short", role: "viewer", expires_in_seconds: 8 });
    const over = await create(app, { name: "over", role: "viewer" });
    await write(app, over.id, "revoke");
    const node = await create(app, { name: "n", role: "node" });
    const socket = await connectRawNode({ url: app.url, headers: bearer(node.secret) });
    await socket.register();
    const signedIn = await fetch(`${app.url}${API}/login`, {
      method: "POST",
      headers: { origin: app.url, "content-type": "application/json" },
      body: JSON.stringify({ token: known.secret }),
    });
    const cookie = { cookie: signedIn.headers.get("set-cookie")!.split(";")[0]! };
    expect((await app.ask("GET", `${API}/me`, undefined, cookie)).status).toBe(200);
    proxy.refuse();
    proxy.reset();
    const unknown = `tnr_${"z".repeat(43)}`;
    await until(async () => (await meWith(app, unknown)) === 503, { what: "503" });
    expect(await meWith(app, known.secret)).toBe(200);
    expect(await meWith(app, over.secret)).toBe(401);
    expect(await meWith(app, "no-token-of-the-table")).toBe(401);
    const answer = await app.ask("GET", `${API}/me`, undefined, bearer(unknown));
    expect(answer.body.error).toMatchObject({ code: "DEPENDENCY_DOWN", retryable: true });
    const beganMs = performance.now();
    await until(async () => (await meWith(app, short.secret)) === 401, {
      what: "its end",
      deadlineMs: 10_000,
    });
    // Beyond the cache of five seconds.
    while (performance.now() - beganMs < 6_000) {
      expect((await app.ask("GET", `${API}/me`, undefined, cookie)).status).toBe(200);
      await new Promise((resolve) => setTimeout(resolve, 250));
    }
    expect(socket.socket.readyState).toBe(socket.socket.OPEN);
    await proxy.heal();
    await until(async () => (await meWith(app, unknown)) === 401, { what: "401 again" });
    await socket.close();
  });

  test("the last use is stored, and does not count as a change", async () => {
    const used = await create(app, { name: "used", role: "viewer" });
    expect(await meWith(app, used.secret)).toBe(200);
    const second = await openApp(database.uri, ENV);
    expect(await meWith(second, used.secret)).toBe(200);
    const { version } = (await rowOf(used.id))!;
    await second.stop();
    const row = await rowOf(used.id);
    expect(row?.last_used_at).toBeInstanceOf(Date);
    expect(row?.version).toBe(version);
  });
});

describe("tenants", () => {
  let database: TestDatabase;
  let app: TestApp;
  const BLUE = bearer("the-admin-of-blue-only");
  const ALL = bearer("the-admin-of-all-tenants");
  beforeAll(async () => {
    database = await openAppDatabase();
    const { startTestApp } = await import("../../testing/test-app.ts");
    const entry = (name: string, secret: string, tenant: string) =>
      `[[auth.tokens]]\nname = "${name}"\nrole = "admin"\ntenant = "${tenant}"\nsha256 = "${tokenSha256(secret)}"\n`;
    const toml =
      entry("blue", "the-admin-of-blue-only", "blue") +
      entry("all", "the-admin-of-all-tenants", "*") +
      entry("red", "the-admin-of-red-only", "red");
    const started = await startTestApp({ postgresUri: database.uri, toml });
    app = {
      ...started,
      async ask(method, path, body, headers = {}) {
        const response = await fetch(new URL(path, started.url), {
          method,
          headers: { "content-type": "application/json", ...headers },
          ...(body !== undefined && { body: JSON.stringify(body) }),
        });
        const text = await response.text();
        return { status: response.status, body: text.startsWith("{") ? JSON.parse(text) : text };
      },
    };
  });
  afterAll(async () => {
    await app.stop();
    await database.drop();
  });

  test.each([
    { role: "admin", tenant: "red" },
    { role: "admin", tenant: "*" },
    { role: "viewer", tenant: "*" },
    { role: "node", scopes: { tenants: ["*"] } },
    { role: "node", scopes: { tenants: ["blue", "red"] } },
    { role: "node", join: true, scopes: { tenants: ["red"] } },
    { role: "signer", scopes: { signers: ["eip155:1:*"] } },
    { role: "signer" },
  ])("an admin of one tenant cannot create %j", async (body) => {
    const answer = await app.ask("POST", `${API}/tokens`, { name: "x", ...body }, BLUE);
    expect(answer).toMatchObject({ status: 403, body: { error: { code: "FORBIDDEN" } } });
  });

  test("an admin of one tenant sees, rotates and revokes tokens of its tenant only", async () => {
    const red = await create(app, { name: "r", role: "viewer", tenant: "red" }, ALL);
    const all = await create(app, { name: "a", role: "viewer", tenant: "*" }, ALL);
    const scopes = { tenants: ["*"] };
    const wide = await create(app, { name: "w", role: "node", tenant: "blue", scopes }, ALL);
    const own = await create(app, { name: "b", role: "admin" }, BLUE);
    expect(own.tenant).toBe("blue");
    const ask = async (method: string, path: string, body?: object) =>
      (await app.ask(method, `${API}/tokens${path}`, body, BLUE)).status;
    for (const { id } of [red, all]) {
      expect(await ask("GET", `/${id}`)).toBe(404);
      expect(await ask("POST", `/${id}/revoke`, {})).toBe(404);
      expect(await ask("POST", `/${id}/rotate`, {})).toBe(404);
    }
    // Its new secret would open every tenant to the admin of one.
    expect(await ask("POST", `/${wide.id}/rotate`, {})).toBe(403);
    expect(await ask("POST", `/${wide.id}/revoke`, {})).toBe(403);
    expect(await ask("GET", "?tenant=red")).toBe(403);
    const { items } = (await app.ask("GET", `${API}/tokens`, undefined, BLUE)).body;
    expect(items.map(({ id }: Answer) => id).sort()).toEqual([wide.id, own.id].sort());
    expect(await ask("POST", `/${own.id}/rotate`, {})).toBe(200);
    // What a token of the table grants is within its tenant as well.
    const asOwn = bearer(own.secret);
    expect(
      (await app.ask("POST", `${API}/tokens`, { name: "y", role: "viewer", tenant: "red" }, asOwn))
        .status,
    ).not.toBe(200);
  });
});

test("a second tenant takes the operator's rights from the first, as a token of the table too", async () => {
  const database = await openAppDatabase();
  const app = await openApp(database.uri, ENV);
  onTestFinished(async () => {
    await app.stop();
    await database.drop();
  });
  const operates = async () => (await app.ask("GET", `${API}/me`, undefined, ADMIN)).body.operates;
  expect(await operates()).toBe(true);
  const stream = await openStream(app, ADMIN);
  const db = openPostgres({ uri: database.uri, poolMax: 1 });
  await db.query(
    sql`insert into token (name, role, tenant, sha256) values ('b', 'viewer', 'blue', ${"ab".repeat(32)})`,
  );
  await db.close();
  // Its stream was opened with the rights of an operator.
  await stream.ended;
  expect(await operates()).toBe(false);
});

test("the tokens of the settings are replaced while the server runs", async () => {
  const database = await openAppDatabase();
  const app = await openApp(database.uri, ENV);
  onTestFinished(async () => {
    await app.stop();
    await database.drop();
  });
  const rule = (secret: string, role: "admin" | "node", more = {}) => ({
    ...{ name: secret.slice(0, 4), role, tenant: "default", sha256: tokenSha256(secret) },
    ...more,
  });
  app.replaceTokens([
    rule("node-of-the-first-kind", "node"),
    rule("kept-node-of-any-kind", "node"),
    rule("the-second-admin", "admin"),
  ]);
  expect(await meWith(app, "the-first-admin-of-all")).toBe(401);
  expect(await meWith(app, "the-second-admin")).toBe(200);
  const open = async (secret: string) => {
    const node = await connectRawNode({ url: app.url, headers: bearer(secret) });
    await node.register();
    return node;
  };
  const [removed, limited, kept] = [
    await open("node-of-the-first-kind"),
    await open("kept-node-of-any-kind"),
    await open("the-second-admin"),
  ];
  app.replaceTokens([
    rule("kept-node-of-any-kind", "node", { pools: ["a"] }),
    rule("the-second-admin", "admin"),
  ]);
  expect(await removed.closed).toMatchObject({ code: 4401 });
  // Its rights changed: it connects again with the new ones.
  expect(await limited.closed).toMatchObject({ code: 4401 });
  expect(kept.socket.readyState).toBe(kept.socket.OPEN);
  expect(() => app.replaceTokens([])).toThrow("restart");
  expect(await meWith(app, "the-second-admin")).toBe(200);
  await kept.close();
});
