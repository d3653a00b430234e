import { readFileSync } from "node:fs";
import { join } from "node:path";
import { type DeploymentView, mayCall, ROUTE_LIST } from "@tenure/protocol";
import { type RunningUnit, startUnit } from "@tenure/testing/fleet/node-unit";
import { type Answer, storeSettings } from "@tenure/testing/fleet/running-server";
import { type FaultProxy, startProxy } from "@tenure/testing/processes/proxy";
import { createDatabase } from "@tenure/testing/stores/database";
import { stores } from "@tenure/testing/stores/stores";
import { until } from "@tenure/testing/until";
import { Client } from "pg";
import { afterAll, beforeAll, beforeEach, expect, test, vi } from "vitest";
import WebSocket from "ws";
import { type AttackedServer, type AttackToken, attackServer } from "./scene.ts";

// The token of a child must be good for its own term, its own deployment and its grants, and for nothing else.

vi.setConfig({ testTimeout: 240_000, hookTimeout: 240_000 });

const TOKENS: AttackToken[] = [
  { name: "admin", role: "admin" },
  { name: "node", role: "node" },
  { name: "session", role: "session" },
];
const PATIENT = { deadlineMs: 60_000, everyMs: 50 };
const SIGNER = "eip155:1:0xaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const OTHER = "eip155:5:0xbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
/** Keeps what the child got where the test finds it. */
const KEEP = 'printf "%s %s" "$TENURE_TOKEN" "$TENURE_URL" >given; exec sleep 1000';

let database: Awaited<ReturnType<typeof createDatabase>>;
let db: Client;
let proxy: FaultProxy;
let server: AttackedServer;
let units: RunningUnit[];

beforeAll(async () => {
  database = await createDatabase(stores().postgresAdminUri);
  const uri = new URL(database.uri);
  proxy = await startProxy({ targetPort: Number(uri.port), targetHost: uri.hostname });
  [uri.hostname, uri.port] = [proxy.host, String(proxy.port)];
  server = await attackServer(TOKENS, { env: storeSettings({ postgresUri: uri.href }) });
  db = new Client({ connectionString: database.uri });
  await db.connect();
  units = [];
  for (const name of ["one", "two"])
    units.push(
      await startUnit({
        // The first of the list answers nothing.
        ...{ name, urls: ["http://127.0.0.1:9", server.url] },
        env: { HOST_TOKEN: server.secretOf("node") },
      }),
    );
});
afterAll(async () => {
  await Promise.all(units.map((unit) => unit.kill9()));
  await db.end();
  await server.stop();
  proxy.stop();
  await database.drop();
});
beforeEach(() => db.query("delete from deployment"));

const admin = (method: string, path: string, body?: unknown) =>
  server.as("admin", method, `/api/v1${path}`, body);
const read = async (id: string) =>
  (await admin("GET", `/deployments/${id}`)).body as DeploymentView;

async function create(spec: object): Promise<DeploymentView> {
  const answer = await admin("POST", "/deployments", spec);
  expect(answer).toMatchObject({ status: 201 });
  return answer.body as DeploymentView;
}

interface Given {
  token: string;
  url: string;
  generation: number;
}

/** What the child on this node was given, once it runs in a later term. */
async function givenOn(unit: RunningUnit, id: string, after = -1): Promise<Given> {
  const running = async () => {
    const { status, generation, address } = await read(id);
    const isHere = address === unit.address && generation > after;
    return (
      isHere &&
      status.some((one) => one.state === "running" && one.generation === generation) && {
        generation,
      }
    );
  };
  const { generation } = await until(running, { ...PATIENT, what: `${id} on ${unit.name}` });
  const written = () => {
    const text = readFileSync(join(unit.dataDir, "work", id, "given"), "utf8");
    return text.includes(" ") && text;
  };
  const text = await until(written, { ...PATIENT, what: "the token" });
  const [token = "", url = ""] = text.split(" ");
  return { token, url, generation };
}

function as(token: string, method: string, path: string, body?: unknown): Promise<Answer> {
  return server.get(path, {
    method,
    headers: {
      authorization: `Bearer ${token}`,
      ...(body !== undefined && { "content-type": "application/json" }),
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
}

const fence = (token: string, id: string, generation: number) =>
  as(token, "GET", `/api/v1/deployments/${id}/fence?generation=${generation}`);

test("a stolen token is refused as soon as its term is over, and that of the next child is accepted", async () => {
  const [one, two] = units as [RunningUnit, RunningUnit];
  const web = await create({ name: "web", command: KEEP, pin: one.address });
  let former = await givenOn(one, web.id);
  expect(former.token).toMatch(/^tnrc_/);
  expect(former.url).toBe(server.url);
  const delays: number[] = [];
  for (const [nth, unit] of [two, one, two, one, two, one].entries()) {
    expect(await fence(former.token, web.id, former.generation), `move ${nth}`).toMatchObject({
      ...{ status: 200, body: { fence: "current" } },
    });
    await admin("PATCH", `/deployments/${web.id}`, { pin: unit.address });
    const refusedAtMs = await until(
      async () => {
        const { status } = await fence(former.token, web.id, former.generation);
        return status === 401 && Date.now();
      },
      { ...PATIENT, everyMs: 5, what: "the former token to be refused" },
    );
    const { rows } = await db.query<{ at: Date }>("select updated_at as at from deployment");
    delays.push(refusedAtMs - rows[0]!.at.getTime());
    const next = await givenOn(unit, web.id, former.generation);
    expect(next.token).not.toBe(former.token);
    expect(await fence(next.token, web.id, next.generation)).toMatchObject({ status: 200 });
    expect((await fence(former.token, web.id, former.generation)).body).toMatchObject({
      error: { code: "UNAUTHENTICATED", message: expect.stringContaining("is over") },
    });
    former = next;
  }
  process.stdout.write(`refused after ${delays.join(", ")} ms\n`);
  expect(Math.max(...delays)).toBeLessThan(1_000);
});

test("the token is good for its grants and its own fence, and for no other route or socket", async () => {
  const [one] = units as [RunningUnit];
  for (const signer of [SIGNER, OTHER])
    expect(await admin("PUT", `/signers/${signer}`, { next_nonce: 7 })).toMatchObject({
      status: 200,
    });
  const grants = { pools: ["invoices"], signers: ["eip155:1:*"] };
  const web = await create({ name: "web", command: KEEP, pin: one.address, grants });
  const other = await create({ name: "other", command: KEEP, pin: one.address });
  const { token, generation } = await givenOn(one, web.id);
  const ungranted = await givenOn(one, other.id);
  const submit = (by: string, pool: string, request_id: string) =>
    as(by, "POST", "/api/v1/jobs", { request_id, pool, payload: 1, pending_ms: 600_000 });
  const allocate = (by: string, signer: string) =>
    as(by, "POST", `/api/v1/signers/${signer}/nonces`, { request_id: "r" });

  const job = await submit(token, "invoices", "own");
  expect(job).toMatchObject({ status: 202 });
  const foreign = await submit(server.secretOf("session"), "invoices", "foreign");
  const jobPath = ({ body }: Answer) => `/api/v1/jobs/${(body as { job_id: string }).job_id}`;
  expect(await as(token, "GET", jobPath(job))).toMatchObject({ status: 200 });
  expect(await as(token, "GET", jobPath(foreign))).toMatchObject({ status: 404 });
  expect(await submit(token, "secret-pool", "no")).toMatchObject({ status: 403 });
  expect(await submit(ungranted.token, "invoices", "no")).toMatchObject({ status: 403 });
  expect(await as(ungranted.token, "GET", jobPath(job))).toMatchObject({ status: 404 });

  const allocated = await allocate(token, SIGNER);
  expect(allocated).toMatchObject({ status: 200, body: { nonce: 7 } });
  expect(await as(token, "GET", `/api/v1/signers/${SIGNER}`)).toMatchObject({ status: 200 });
  const { hold_id } = allocated.body as { hold_id: string };
  const used = { hold_id, tx_hash: `0x${"0".repeat(64)}` };
  const usedPath = (signer: string) => `/api/v1/signers/${signer}/nonces/7/used`;
  expect(await as(ungranted.token, "POST", usedPath(SIGNER), used)).toMatchObject({ status: 403 });
  expect(await as(token, "POST", usedPath(OTHER), used)).toMatchObject({ status: 403 });
  expect(await as(token, "POST", usedPath(SIGNER), used)).toMatchObject({ status: 200 });
  expect(await allocate(token, OTHER)).toMatchObject({ status: 403 });
  expect(await as(token, "GET", `/api/v1/signers/${OTHER}`)).toMatchObject({ status: 403 });
  expect(await allocate(ungranted.token, SIGNER)).toMatchObject({ status: 403 });
  // A signer that does not exist is not opened by a grant.
  expect(await allocate(token, "eip155:1:unknown")).toMatchObject({ status: 403 });

  expect(await fence(token, "web", generation)).toMatchObject({ status: 200 });
  expect(await fence(token, other.id, ungranted.generation)).toMatchObject({ status: 403 });
  // What was granted counts from the next call.
  await admin("PATCH", `/deployments/${web.id}`, { grants: {} });
  expect(await submit(token, "invoices", "later")).toMatchObject({ status: 403 });

  for (const route of ROUTE_LIST.filter((one) => !mayCall(one, "child"))) {
    const path = route.path.replace(":id", web.id).replace(":signer", SIGNER);
    const filled = path.replace(":nonce", "7").replace(":name", "db");
    const body = route.method === "GET" ? undefined : {};
    expect([route.name, (await as(token, route.method, filled, body)).status]).toEqual([
      ...[route.name, 403],
    ]);
  }
  const signIn = await server.get("/api/v1/login", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ token }),
  });
  expect(signIn.status).toBe(403);
  for (const path of ["/ws/node", "/ws/session"]) {
    const socket = new WebSocket(`${server.url.replace("http", "ws")}${path}`, {
      headers: { authorization: `Bearer ${token}` },
    });
    socket.on("error", () => {});
    socket.on("open", () =>
      socket.send(JSON.stringify({ type: "session_init", protocol_version: 1 })),
    );
    const code = await new Promise((resolve) => socket.once("close", resolve));
    expect([path, code]).toEqual([path, path === "/ws/session" ? 4403 : expect.any(Number)]);
  }
  const { rows } = await db.query("select count(*)::int as nodes from node_unit where online");
  expect(rows).toEqual([{ nodes: units.length }]);
  // It is in the child's environment, and not in an answer or a log of the server.
  for (const text of [JSON.stringify(await read(web.id)), server.stdout(), server.stderr()])
    expect(text).not.toContain("tnrc_");
});

test("with Postgres away neither the former nor the present holder gets an answer", async () => {
  const [one, two] = units as [RunningUnit, RunningUnit];
  const grants = { pools: ["invoices"] };
  const web = await create({ name: "web", command: KEEP, pin: one.address, grants });
  const former = await givenOn(one, web.id);
  await admin("PATCH", `/deployments/${web.id}`, { pin: two.address });
  const present = await givenOn(two, web.id, former.generation);
  proxy.refuse();
  proxy.reset();
  try {
    for (const { token, generation } of [former, present]) {
      // Jobs are not in Postgres: only the check of the term refuses this one.
      const job = { request_id: `away-${generation}`, pool: "invoices", payload: 1 };
      for (const answer of [
        await fence(token, web.id, generation),
        await as(token, "POST", "/api/v1/jobs", job),
      ])
        expect(answer).toMatchObject({
          ...{ status: 503, body: { error: { code: "DEPENDENCY_DOWN" } } },
        });
    }
    const live = await as(former.token, "GET", "/health/live");
    expect(live.status).toBe(200);
  } finally {
    await proxy.heal();
  }
  const answers = async () => {
    const both = [former, present].map(({ token, generation }) => fence(token, web.id, generation));
    return (await Promise.all(both)).map(({ status }) => status).join() === "401,200";
  };
  await until(answers, { ...PATIENT, what: "Postgres" });
});
