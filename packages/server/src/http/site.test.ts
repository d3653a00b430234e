import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { scratchDirectory } from "@tenure/testing/scratch";
import Fastify, { type FastifyInstance } from "fastify";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { notFound } from "./failure.ts";
import { openSite } from "./site.ts";

const PAGE = "<!doctype html><title>Tenure</title>";
const SCRIPT = "console.log(1);".repeat(100);
const BROWSER = { accept: "text/html,application/xhtml+xml,*/*;q=0.8" };

let app: FastifyInstance;
beforeAll(() => {
  const directory = scratchDirectory("site");
  mkdirSync(join(directory, "assets"));
  writeFileSync(join(directory, "index.html"), PAGE);
  writeFileSync(join(directory, "assets/main-a1b2.js"), SCRIPT);
  app = serving(directory);
});
afterAll(() => app.close());

function serving(directory: string): FastifyInstance {
  const site = openSite(directory);
  const served = Fastify();
  served.setNotFoundHandler((request, reply) => {
    if (!site.answer(request, reply)) notFound(request, reply);
  });
  return served;
}

const get = (url: string, headers: Record<string, string> = BROWSER) =>
  app.inject({ method: "GET", url, headers });

describe("the page", () => {
  test.each([
    "/",
    "/?x=1",
    "/deployments",
    "/signers/cosmos.hub:1",
  ])("the page is at %s", async (url) => {
    const { statusCode, headers, body } = await get(url);
    expect([statusCode, body]).toEqual([200, PAGE]);
    expect(headers["content-type"]).toBe("text/html; charset=utf-8");
    expect(headers["cache-control"]).toBe("no-cache");
  });

  test("the page runs only its own scripts and cannot be framed", async () => {
    const policy = String((await get("/")).headers["content-security-policy"]);
    expect(policy).toContain("default-src 'none'");
    expect(policy).toContain("script-src 'self'");
    expect(policy).toContain("frame-ancestors 'none'");
    expect(policy).not.toContain("unsafe");
  });

  test("the page is not sent again to a client that has it", async () => {
    const { headers } = await get("/");
    const again = await get("/", { ...BROWSER, "if-none-match": String(headers.etag) });
    expect([again.statusCode, again.body]).toEqual([304, ""]);
  });
});

test.each([
  "/api/v1/no-such",
  "/api",
  "/health/no-such",
  "/metrics/x",
  "/ws/no-such",
  "/assets/main-old.js",
])("%s is not found for any client", async (url) => {
  const { statusCode, headers } = await get(url);
  expect(statusCode).toBe(404);
  expect(headers["content-type"]).toContain("application/json");
});

test("a program that requests an unknown path gets no page", async () => {
  expect((await get("/deployments", { accept: "*/*" })).statusCode).toBe(404);
  expect((await app.inject({ method: "POST", url: "/", headers: BROWSER })).statusCode).toBe(404);
});

test("assets are immutable and compressed", async () => {
  const { headers, rawPayload } = await get("/assets/main-a1b2.js", { "accept-encoding": "gzip" });
  expect(headers).toMatchObject({
    "content-type": "text/javascript; charset=utf-8",
    "cache-control": "public, max-age=31536000, immutable",
    "content-encoding": "gzip",
  });
  expect(rawPayload.length).toBeLessThan(SCRIPT.length / 4);
  expect((await get("/assets/main-a1b2.js", {})).body).toBe(SCRIPT);
});

test.each([
  "/../package.json",
  "/..%2fpackage.json",
  "/assets/../../site.ts",
  "//etc/passwd",
])("%s does not leave the directory", async (url) => {
  expect((await get(url, {})).statusCode).toBe(404);
});

test("without a build the page names the command to run", async () => {
  const bare = serving(join(scratchDirectory("site"), "none"));
  const { statusCode, body } = await bare.inject({ method: "GET", url: "/" });
  expect([statusCode, body]).toEqual([200, expect.stringContaining("npm run build")]);
  await bare.close();
});
