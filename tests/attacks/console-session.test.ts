import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { openBrowser, openWindow, signIn } from "../console/browser.ts";
import { attackServerOnPostgres } from "./on-postgres.ts";
import type { AttackedServer } from "./scene.ts";

vi.setConfig({ testTimeout: 240_000, hookTimeout: 240_000 });

let server: AttackedServer;
let browser: Browser;
let neighbour: Server;
/** The `Cookie` headers that another program of the host was sent. */
const cookiesSeen: string[] = [];

beforeAll(async () => {
  server = await attackServerOnPostgres([{ name: "ops", role: "admin" }]);
  browser = await openBrowser();
  neighbour = createServer((request, response) => {
    if (request.headers.cookie) cookiesSeen.push(request.headers.cookie);
    response.end("<!doctype html>nothing to see");
  });
  await once(neighbour.listen(0, "127.0.0.1"), "listening");
});
afterAll(async () => {
  await browser?.close();
  neighbour?.close();
  await server?.stop();
});

const me = async (headers: Record<string, string>): Promise<number> =>
  (await server.get("/api/v1/me", { headers })).status;

// Cookies know no port: what the browser keeps for this server it sends to every port of the host.
test("another port of the host gets no token by the console's cookie, and nothing after the sign-out", async () => {
  const page = await (await openWindow(browser)).newPage();
  await signIn(page, server.url, server.secretOf("ops"));
  const { port } = neighbour.address() as AddressInfo;
  const other = await page.context().newPage();
  await other.goto(`http://127.0.0.1:${port}/api/v1/anything`);
  const stolen = cookiesSeen.at(-1) ?? "";
  expect(stolen).toMatch(/tenure_session_\d+=/);

  const values = stolen.split(";").map((pair) => pair.slice(pair.indexOf("=") + 1));
  const decoded = values.flatMap((value) => [value, Buffer.from(value, "base64url").toString()]);
  expect(decoded).not.toContain(server.secretOf("ops"));
  for (const value of decoded.filter((text) => /^[\w-]+$/.test(text)))
    expect(await me({ authorization: `Bearer ${value}` })).toBe(401);

  // Until the sign-out it is as good as its owner's; nothing of it outlives that.
  expect(await me({ cookie: stolen })).toBe(200);
  await page.bringToFront();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("Token").waitFor();
  expect(await me({ cookie: stolen })).toBe(401);
});

test("the cookie of 0.1.0, which was the token, opens nothing", async () => {
  const value = Buffer.from(server.secretOf("ops")).toString("base64url");
  const { port } = new URL(server.url);
  for (const name of ["tenure_token", `tenure_session_${port}`, "__Host-tenure_session"])
    expect(await me({ cookie: `${name}=${value}` })).toBe(401);
});
