import { randomUUID } from "node:crypto";
import { type AuditRecord, mayCall, ROLES, ROUTES, type Route } from "@tenure/protocol";
import { type Answer, storeSettings } from "@tenure/testing/fleet/running-server";
import { uniqueKeyPrefix } from "@tenure/testing/stores/redis";
import { stores } from "@tenure/testing/stores/stores";
import { until } from "@tenure/testing/until";
import { afterAll, beforeAll, expect, test } from "vitest";
import { attackServerOnPostgres } from "./on-postgres.ts";
import type { AttackedServer, AttackToken } from "./scene.ts";
import { callsOf, FLEET_ROUTES, furnish, newKeyFile, type Owned, TENANTS } from "./table.ts";

// Every route × every role × the caller's tenant × the tenant of the thing × the tenant that is named with `?tenant=`.

const ANY_TENANT_ROLES = ["admin", "viewer"] as const;

const TOKENS: AttackToken[] = [
  ...TENANTS.flatMap((tenant) =>
    ROLES.map((role): AttackToken => ({ name: `${tenant}-${role}`, role, tenant })),
  ),
  ...ANY_TENANT_ROLES.map((role): AttackToken => ({ name: `all-${role}`, role, tenant: "*" })),
];

let server: AttackedServer;
let owned: Owned;
beforeAll(async () => {
  // With Redis, because only there are dead letters.
  const prefix = uniqueKeyPrefix();
  server = await attackServerOnPostgres(TOKENS, {
    env: {
      ...storeSettings({ redisUrl: stores().redisUrl }),
      TENURE_SCHEDULER_PHASE2_REDIS_KEY_PREFIX: prefix,
      TENURE_SERVER_SECRET_KEY_FILE: newKeyFile(),
    },
  });
  owned = await furnish(server, prefix);
});
afterAll(async () => {
  await owned.close();
  await server.stop();
});

const otherOf = (tenant: string): string => TENANTS.find((one) => one !== tenant) ?? "";
const markerOf = (tenant: string): string => `marker-of-${tenant}`;

interface Check {
  name: string;
  route: Route;
  token: AttackToken | undefined;
  owner: string;
  named: string | undefined;
}

/** All combinations. What a caller of one tenant gets by naming another is asked of reads only. */
function* checks(): Generator<Check> {
  for (const [name, route] of Object.entries<Route>(ROUTES)) {
    if (route.produces?.includes("text/event-stream") && name === "openStream") continue;
    for (const token of [undefined, ...TOKENS])
      for (const owner of TENANTS)
        for (const named of [undefined, ...(route.method === "GET" ? TENANTS : [])])
          yield { name, route, token, owner, named };
  }
}

/** The tenant that the caller of this check is within; `undefined` = all. */
function seenBy({ route, token, named }: Check): string | undefined {
  if (token?.role === "peer") {
    // A peer of 0.1.0 names no tenant of its caller.
    return route.path.includes("/signers") ? "default" : named;
  }
  return token?.tenant === "*" ? named : (token?.tenant ?? "default");
}

/** The statuses that a call may have. */
function judge(check: Check): (status: number) => boolean {
  const { name, route, token, owner, named } = check;
  const only = (expected: number) => (status: number) => status === expected;
  if (route.roles === "public") return (status) => status !== 403 && status !== 500;
  if (!token) return only(401);
  if (!mayCall(route, token.role)) return only(403);
  const { tenant = "default" } = token;
  const isWide = tenant === "*" || token.role === "peer";
  if (named !== undefined && !isWide && named !== tenant) return only(403);
  const seen = seenBy(check);
  if (FLEET_ROUTES.has(name) && !isWide) return only(403);
  if (name === "readMetrics") return only(seen === undefined || seen === "default" ? 200 : 403);
  if (seen === undefined && WRITES_NEED_TENANT.has(name)) return only(400);
  const isForeign = seen !== undefined && seen !== owner && route.path.includes("/:");
  if (isForeign) return only(FOREIGN[name] ?? 404);
  return (status) => ![401, 403, 404, 500].includes(status);
}

/** They need a tenant in the request from a caller of all tenants. */
const WRITES_NEED_TENANT = new Set(["createDeployment", "submitJob", "setSecret", "removeSecret"]);

/**
 * A signer of another tenant may not be opened or moved here, and has an empty list of numbers. A secret that is set is the
 * caller's own one of that name.
 */
const FOREIGN: Record<string, number> = {
  setSecret: 200,
  ...{ raiseSigner: 403, allocateNonces: 403, moveSigner: 403, listNonces: 200 },
};

test("role × route × tenant × scope", { timeout: 600_000 }, async () => {
  const all = [...checks()];
  const wrong: string[] = [];
  let count = 0;
  for (let from = 0; from < all.length; from += AT_ONCE)
    for (const found of await Promise.all(all.slice(from, from + AT_ONCE).map(walk))) {
      count += found.count;
      wrong.push(...found.wrong);
    }
  process.stdout.write(`table: ${count} checks, ${wrong.length} wrong\n`);
  expect(wrong.slice(0, 40)).toEqual([]);
  expect(count).toBeGreaterThan(3_000);
});

const AT_ONCE = 8;

async function walk(check: Check): Promise<{ count: number; wrong: string[] }> {
  const { name, route, token, owner, named } = check;
  const wrong: string[] = [];
  const isAllowed = mayCall(route, token?.role);
  const { path, body } = await callsOf(route, name, owned.of(owner), isAllowed);
  const query = named === undefined ? "" : `${path.includes("?") ? "&" : "?"}tenant=${named}`;
  const answer = await ask(token, route.method, `${path}${query}`, body);
  const says = `${route.method} ${path}${query} by ${token?.name ?? "nobody"}`;
  if (!judge(check)(answer.status)) wrong.push(`${answer.status} ${says}`);
  if (route.roles === "public") return { count: 1, wrong };
  const seen = seenBy(check);
  const hidden = !token ? TENANTS : seen === undefined ? [] : [otherOf(seen)];
  for (const tenant of hidden)
    if (isLeak(check, answer, { tenant, path })) wrong.push(`leak of ${tenant}: ${says}`);
  return { count: 1 + hidden.length, wrong };
}

/** As the token's holder would; an instance marks what it passes on. */
function ask(
  token: AttackToken | undefined,
  method: string,
  path: string,
  body: unknown,
): Promise<Answer> {
  if (token?.role !== "peer") return server.as(token?.name, method, path, body);
  const headers = {
    authorization: `Bearer ${server.secretOf(token.name)}`,
    ...(body !== undefined && { "content-type": "application/json" }),
    "x-tenure-forwarded": "another-instance",
  };
  const init = { method, headers, ...(body !== undefined && { body: JSON.stringify(body) }) };
  return server.get(path, init);
}

/** Whether the answer has something of a tenant that its caller is not within. An error may repeat what its caller named. */
function isLeak(
  { name, token }: Check,
  { status, body }: Answer,
  { tenant, path }: { tenant: string; path: string },
): boolean {
  // A refused call is audited with the id that its caller named: what counts is whose calls are listed.
  if (name === "listAudit" && status === 200 && token?.role === "admin")
    return (body as { items: AuditRecord[] }).items.some(({ actor }) => actor.tenant === tenant);
  const named = decodeURIComponent(path.split("/")[4] ?? "");
  const text = JSON.stringify(body ?? "");
  const shown = status < 400 || named === "" ? text : text.replaceAll(named, "");
  return owned.of(tenant).secrets.some((secret) => shown.includes(secret));
}

test("each tenant sees the dead letters of its own jobs", async () => {
  for (const tenant of TENANTS) {
    const { body } = await server.as(`${tenant}-viewer`, "GET", "/api/v1/dlq?limit=500");
    const { items } = body as { items: { job_id: string }[] };
    expect(items.map(({ job_id }) => job_id)).toContain(owned.of(tenant).job.job_id);
    for (const { job_id } of items) expect(job_id).toBe(owned.of(tenant).job.job_id);
  }
});

test("a follower of the stream hears of its own tenant only", async () => {
  for (const tenant of [...TENANTS, "*"]) {
    const gone = new AbortController();
    const name = tenant === "*" ? "all-viewer" : `${tenant}-viewer`;
    const heard = await follow(name, gone.signal);
    const id = randomUUID();
    for (const owner of [...TENANTS].reverse()) {
      const body = { name: `${markerOf(owner)}-${id}`, command: "true", enabled: false };
      await server.as("all-admin", "POST", `/api/v1/deployments?tenant=${owner}`, body);
    }
    const last = tenant === "*" ? TENANTS : [tenant];
    const isHeard = () => last.every((one) => heard().includes(`${markerOf(one)}-${id}`));
    await until(isHeard, { what: `its own event for ${name}` });
    for (const other of TENANTS.filter((one) => !last.includes(one)))
      expect(heard()).not.toContain(markerOf(other));
    gone.abort();
  }
});

async function follow(name: string, signal: AbortSignal): Promise<() => string> {
  const headers = { authorization: `Bearer ${server.secretOf(name)}` };
  const response = await fetch(`${server.url}/api/v1/stream`, { headers, signal });
  expect(response.status).toBe(200);
  let text = "";
  const decoder = new TextDecoder();
  (async () => {
    for await (const bytes of response.body!) text += decoder.decode(bytes, { stream: true });
  })().catch(() => {});
  return () => text;
}
