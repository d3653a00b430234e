import { Stats } from "@tenure/protocol";
import type { TestDatabase } from "@tenure/testing/stores/database";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openApp, openAppDatabase, type TestApp } from "../../../testing/apps.ts";
import { openPostgres } from "../../store/postgres.ts";
import { sql } from "../../store/sql.ts";
import { endedCookies, sessionCookie, sessionIdsIn } from "../cookie.ts";

const API = "/api/v1";
const ADMIN = "rule;=é-of-sixteen";
const VIEWER = "look-at-it-of-sixteen";
const SESSION = "talk-to-it-of-sixteen";

let database: TestDatabase;
let app: TestApp;
beforeAll(async () => {
  database = await openAppDatabase();
  app = await openApp(database.uri, tokens(`admin:${ADMIN},viewer:${VIEWER},session:${SESSION}`));
});
afterAll(async () => {
  await app.stop();
  await database.drop();
});

function tokens(list: string): Record<string, string> {
  return { TENURE_TOKENS: list, TENURE_AUTH_PEER_TOKEN: "between-the-instances" };
}

/** As a page of this server would. */
async function fromPage(
  method: string,
  path: string,
  { cookie, body, at = app }: { cookie?: string; body?: object; at?: TestApp } = {},
) {
  const response = await fetch(at.url + API + path, {
    method,
    headers: {
      origin: at.url,
      "content-type": "application/json",
      ...(cookie !== undefined && { cookie }),
    },
    ...(body && { body: JSON.stringify(body) }),
  });
  return { status: response.status, headers: response.headers, text: await response.text() };
}

async function signIn(token: string): Promise<string> {
  const { status, headers } = await fromPage("POST", "/login", { body: { token } });
  expect(status).toBe(200);
  return headers.get("set-cookie")!.split(";")[0]!;
}

const meWith = async (cookie: string, at = app): Promise<number> =>
  (await fromPage("GET", "/me", { cookie, at })).status;

async function inDatabase<T>(statement: ReturnType<typeof sql>): Promise<T[]> {
  const db = openPostgres({ uri: database.uri, poolMax: 1 });
  const { rows } = await db.query<T>(statement);
  await db.close();
  return rows;
}

describe("signing in", () => {
  test("a sign-in sets a cookie that no script can read and no other site can use", async () => {
    const { text, headers } = await fromPage("POST", "/login", { body: { token: VIEWER } });
    expect(JSON.parse(text)).toEqual({
      name: "TENURE_TOKENS:2",
      role: "viewer",
      tenant: "default",
      operates: true,
    });
    const cookie = headers.get("set-cookie")!;
    for (const flag of ["HttpOnly", "SameSite=Strict", "Path=/api/v1", "Max-Age=43200"])
      expect(cookie).toContain(flag);
    expect(cookie).not.toContain("Secure");
    expect(cookie).toMatch(new RegExp(`^tenure_session_${new URL(app.url).port}=`));
  });

  test.each(["wrong", `${VIEWER} `, SESSION])("a sign-in with %j is refused", async (token) => {
    const countRows = async () =>
      (await inDatabase<{ n: number }>(sql`select count(*)::int as n from console_session`))[0]!.n;
    const before = await countRows();
    const { status, headers } = await fromPage("POST", "/login", { body: { token } });
    expect(status).toBe(token === SESSION ? 403 : 401);
    expect(headers.get("set-cookie")).toBeNull();
    expect(await countRows()).toBe(before);
  });

  test("a sign-in works with every valid token", async () => {
    const { status, text } = await fromPage("GET", "/me", { cookie: await signIn(ADMIN) });
    expect([status, JSON.parse(text).role]).toEqual([200, "admin"]);
  });

  test("a sign-in stores neither the token nor the session id", async () => {
    const id = (await signIn(VIEWER)).split("=")[1]!;
    const rows = await inDatabase(sql`select * from console_session`);
    const text = JSON.stringify(rows);
    expect(rows.length).toBeGreaterThan(0);
    for (const secret of [VIEWER, id]) expect(text).not.toContain(secret);
  });

  test("a sign-in from a page over TLS sets a cookie for TLS only", async () => {
    const { host } = new URL(app.url);
    const response = await fetch(`${app.url}${API}/login`, {
      method: "POST",
      headers: { origin: `https://${host}`, "content-type": "application/json" },
      body: JSON.stringify({ token: VIEWER }),
    });
    const cookie = response.headers.get("set-cookie")!;
    expect(cookie).toMatch(/^__Host-tenure_session_\d+=.*; Path=\/; .*; Secure$/);
    expect(await meWith(cookie.split(";")[0]!)).toBe(200);
  });

  test("a sign-out ends the session in the browser and on the server", async () => {
    const cookie = await signIn(VIEWER);
    expect(await meWith(cookie)).toBe(200);
    const { status, headers } = await fromPage("POST", "/logout", { cookie });
    expect([status, headers.get("set-cookie")]).toEqual([
      204,
      expect.stringContaining("Max-Age=0"),
    ]);
    expect(await meWith(cookie)).toBe(401);
  });

  test("a sign-out ends the streams of the session", async () => {
    const cookie = await signIn(VIEWER);
    const stream = await fetch(`${app.url}${API}/stream`, { headers: { cookie } });
    expect(stream.status).toBe(200);
    await fromPage("POST", "/logout", { cookie });
    await expect(drain(stream)).rejects.toThrow();
  });

  test.each([
    ["is too old", sql`update console_session set expires_at = tenure_now()`],
    [
      "was idle for too long",
      sql`update console_session set seen_at = seen_at - interval '1 hour'`,
    ],
  ])("ends when the session %s", async (_, age) => {
    const cookie = await signIn(VIEWER);
    await inDatabase(age);
    expect(await meWith(cookie)).toBe(401);
  });
});

async function drain(stream: Response): Promise<void> {
  for await (const _ of stream.body!);
}

describe("a session at another instance", () => {
  test("a session has the role that its token has at that instance, and ends with the token or its secret", async () => {
    const cookie = await signIn(VIEWER);
    for (const [list, status] of [
      [`admin:${ADMIN},admin:${VIEWER}`, 200],
      [`admin:${ADMIN},viewer:another-secret-of-sixteen`, 401],
      [`admin:${ADMIN}`, 401],
    ] as const) {
      const other = await openApp(database.uri, tokens(list));
      const { text, status: found } = await fromPage("GET", "/me", { cookie, at: other });
      expect(found, list).toBe(status);
      if (status === 200) expect(JSON.parse(text).role).toBe("admin");
      await other.stop();
    }
    expect(await meWith(cookie)).toBe(200);
  });
});

describe("a cookie", () => {
  const drainNode = "/nodes/nobody/drain";

  test("a cookie reads and changes what its role may", async () => {
    const admin = await signIn(ADMIN);
    expect((await fromPage("GET", "/nodes", { cookie: admin })).status).toBe(200);
    expect((await fromPage("POST", drainNode, { cookie: admin })).status).toBe(404);
    const viewer = await signIn(VIEWER);
    expect((await fromPage("GET", "/nodes", { cookie: viewer })).status).toBe(200);
    expect((await fromPage("POST", drainNode, { cookie: viewer })).status).toBe(403);
  });

  test("a cookie changes nothing for a page of another origin, or without an Origin", async () => {
    const cookie = await signIn(ADMIN);
    const ask = (headers: Record<string, string>) => app.ask("POST", API + drainNode, {}, headers);
    expect((await ask({ cookie, origin: "http://evil.example" })).status).toBe(403);
    expect((await ask({ cookie, origin: "null" })).status).toBe(403);
    const bare = await ask({ cookie });
    expect([bare.status, bare.body.error.message]).toEqual([
      403,
      expect.stringContaining("cookie"),
    ]);
    // A token that was put into a header needs no page.
    expect((await ask({ authorization: `Bearer ${VIEWER}` })).status).toBe(403);
  });

  test("a forged cookie opens nothing", async () => {
    const raw = Buffer.from(ADMIN, "utf8").toString("base64url");
    const port = new URL(app.url).port;
    for (const value of ["", "look", raw, "A".repeat(64)])
      for (const name of [`tenure_session_${port}`, "__Host-tenure_session", "tenure_token"])
        expect(await meWith(`${name}=${value}`), `${name}=${value}`).toBe(401);
  });

  test("the cookie of this port is found first among others", () => {
    const header = "a=1; tenure_session_81=x; tenure_session_80=y; __Host-tenure_session_80=z; b=2";
    expect(sessionIdsIn(header, "localhost:80")).toEqual(["z", "y", "x"]);
    expect(sessionIdsIn("not_tenure_session=x; tenure_session_=x", "localhost:80")).toEqual([]);
    expect(sessionIdsIn(undefined, undefined)).toEqual([]);
  });

  test("a cookie for TLS has the host prefix, and a sign-out removes all of ours", () => {
    const scope = { secure: true, host: "tenure.example" };
    expect(sessionCookie("x", 9, scope)).toBe(
      "__Host-tenure_session=x; Path=/; Max-Age=9; HttpOnly; SameSite=Strict; Secure",
    );
    const ended = endedCookies("tenure_session_80=x; __Host-tenure_session=x; tenure_token=y; c=d");
    expect(ended.map((cookie) => cookie.split(";")[0])).toEqual([
      "tenure_session_80=",
      "__Host-tenure_session=",
      "tenure_token=",
    ]);
  });
});

test("a server without tokens takes every local caller for its operator", async () => {
  const open = await openApp(database.uri);
  expect(await open.ask("GET", `${API}/me`)).toMatchObject({
    status: 200,
    body: { role: "admin" },
  });
  await open.stop();
});

test("the overview has its figures from the start", async () => {
  const { status, text } = await fromPage("GET", "/stats", { cookie: await signIn(VIEWER) });
  expect(status).toBe(200);
  expect(Stats.parse(JSON.parse(text))).toMatchObject({
    instance_id: app.instanceId,
    deployments: { enabled: 0, unassigned: 0, running: 0, failing: 0 },
    interval_ms: 5_000,
  });
});

describe("a write without a content type", () => {
  const cancel = async (headers: Record<string, string>, body?: Uint8Array<ArrayBuffer>) => {
    const path = `${API}/jobs/0193f0a0-0000-7000-8000-000000000000/cancel`;
    const init = { method: "POST", headers, ...(body && { body }) };
    return (await fetch(app.url + path, init)).status;
  };
  const bearer = { authorization: `Bearer ${SESSION}` };

  test("a write without a content type is accepted with a bearer token and no body", async () => {
    expect(await cancel(bearer)).toBe(404);
  });

  test("a write without a content type is rejected with a cookie, with Basic, without credentials, and with a body", async () => {
    const cookie = await signIn(VIEWER);
    expect(await cancel({ cookie, origin: app.url })).toBe(400);
    expect(await cancel({ authorization: "Basic dGFsaw==" })).toBe(400);
    expect(await cancel({})).toBe(400);
    expect(await cancel(bearer, new TextEncoder().encode("{}"))).toBe(400);
    expect(await cancel({ ...bearer, "content-type": "text/plain" })).toBe(400);
  });
});
