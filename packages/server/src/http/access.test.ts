import { Stats } from "@tenure/protocol";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { TestDatabase } from "../../../../tests/support/database.ts";
import { openApp, openAppDatabase, type TestApp } from "../../testing/apps.ts";
import { cookieWith, tokenInCookie } from "./cookie.ts";

const API = "/api/v1";

let database: TestDatabase;
let app: TestApp;
beforeAll(async () => {
  database = await openAppDatabase();
  app = await openApp(database.uri, { TENURE_TOKENS: "admin:rule;=é,viewer:look,session:talk" });
});
afterAll(async () => {
  await app.stop();
  await database.drop();
});

/** As a page of this server would. */
async function fromPage(
  method: string,
  path: string,
  options: { cookie?: string; body?: object } = {},
) {
  const { cookie, body } = options;
  const response = await fetch(app.url + API + path, {
    method,
    headers: {
      origin: app.url,
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

describe("signing in", () => {
  test("gives a cookie that no script can read and no other site can use", async () => {
    const { text, headers } = await fromPage("POST", "/login", { body: { token: "look" } });
    expect(JSON.parse(text)).toEqual({
      name: "TENURE_TOKENS:2",
      role: "viewer",
      tenant: "default",
    });
    const cookie = headers.get("set-cookie")!;
    for (const flag of ["HttpOnly", "SameSite=Strict", "Path=/api/v1"])
      expect(cookie).toContain(flag);
    expect(cookie).not.toContain("Secure");
  });

  test.each(["wrong", "look ", "talk"])("with %j is refused", async (token) => {
    const { status, headers } = await fromPage("POST", "/login", { body: { token } });
    expect(status).toBe(token === "talk" ? 403 : 401);
    expect(headers.get("set-cookie")).toBeNull();
  });

  test("works with any token there can be", async () => {
    const { status, text } = await fromPage("GET", "/me", { cookie: await signIn("rule;=é") });
    expect([status, JSON.parse(text).role]).toEqual([200, "admin"]);
  });

  test("ends with a cookie that has run out", async () => {
    const { status, headers } = await fromPage("POST", "/logout", { cookie: await signIn("look") });
    expect([status, headers.get("set-cookie")]).toEqual([
      204,
      expect.stringContaining("Max-Age=0"),
    ]);
  });

  test("over TLS the cookie stays there", () => {
    expect(cookieWith("x", { secure: true })).toContain("Secure");
  });
});

describe("a cookie", () => {
  const drain = "/nodes/nobody/drain";

  test("reads, and changes what its role may change", async () => {
    const admin = await signIn("rule;=é");
    expect((await fromPage("GET", "/nodes", { cookie: admin })).status).toBe(200);
    expect((await fromPage("POST", drain, { cookie: admin })).status).toBe(404);
    const viewer = await signIn("look");
    expect((await fromPage("GET", "/nodes", { cookie: viewer })).status).toBe(200);
    expect((await fromPage("POST", drain, { cookie: viewer })).status).toBe(403);
  });

  test("changes nothing for a page of another origin, or for nobody's page", async () => {
    const cookie = await signIn("rule;=é");
    const ask = (headers: Record<string, string>) => app.ask("POST", API + drain, {}, headers);
    expect((await ask({ cookie, origin: "http://evil.example" })).status).toBe(403);
    expect((await ask({ cookie, origin: "null" })).status).toBe(403);
    const bare = await ask({ cookie });
    expect([bare.status, bare.body.error.message]).toEqual([
      403,
      expect.stringContaining("cookie"),
    ]);
    // A token that was put into a header needs no page.
    expect((await ask({ authorization: `Bearer ${"look"}` })).status).toBe(403);
  });

  test("that no sign-in made opens nothing", async () => {
    for (const cookie of ["tenure_token=", "tenure_token=bG9va2VyCg", "tenure_token=look", "x=y"]) {
      expect((await fromPage("GET", "/me", { cookie })).status, cookie).toBe(401);
    }
  });

  test("is found among others", () => {
    expect(tokenInCookie("a=1; tenure_token=bG9vaw; b=2")).toBe("look");
    expect(tokenInCookie("not_tenure_token=bG9vaw")).toBeUndefined();
    expect(tokenInCookie(undefined)).toBeUndefined();
  });
});

test("a server without tokens takes whoever is on this machine for its operator", async () => {
  const open = await openApp(database.uri);
  expect(await open.ask("GET", `${API}/me`)).toMatchObject({
    status: 200,
    body: { role: "admin" },
  });
  await open.stop();
});

test("the numbers of the overview are there from the start", async () => {
  const { status, text } = await fromPage("GET", "/stats", { cookie: await signIn("look") });
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
  const bearer = { authorization: "Bearer talk" };

  test("is taken with a bearer token and without a body: no other page can send that", async () => {
    expect(await cancel(bearer)).toBe(404);
  });

  test("is refused with a cookie, with Basic, with nothing, and with a body", async () => {
    const cookie = await signIn("look");
    expect(await cancel({ cookie, origin: app.url })).toBe(400);
    expect(await cancel({ authorization: "Basic dGFsaw==" })).toBe(400);
    expect(await cancel({})).toBe(400);
    expect(await cancel(bearer, new TextEncoder().encode("{}"))).toBe(400);
    expect(await cancel({ ...bearer, "content-type": "text/plain" })).toBe(400);
  });
});
