import { spawnSync } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { DeploymentView } from "@tenure/protocol";
import { type RunningUnit, startUnit } from "@tenure/testing/fleet/node-unit";
import { storeSettings } from "@tenure/testing/fleet/running-server";
import { repositoryRoot } from "@tenure/testing/repository";
import { scratchDirectory } from "@tenure/testing/scratch";
import { createDatabase } from "@tenure/testing/stores/database";
import { uniqueKeyPrefix } from "@tenure/testing/stores/redis";
import { stores } from "@tenure/testing/stores/stores";
import { until } from "@tenure/testing/until";
import { Client } from "pg";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { openBrowser, openWindow, signIn } from "../console/browser.ts";
import { otherUser } from "./other-user.ts";
import { type AttackedServer, attackServer } from "./scene.ts";
import * as places from "./secret-places.ts";

// The value of a secret is searched byte by byte wherever a program writes, while everything happens that may write it down. A
// second value is planted in each of these places by means that are allowed, so that the search is seen to find it.

vi.setConfig({ testTimeout: 300_000, hookTimeout: 240_000 });

const CANARY = `canary-${randomBytes(12).toString("hex")}`;
const PLANTED = `planted-${randomBytes(12).toString("hex")}`;
const PATIENT = { deadlineMs: 60_000, everyMs: 100 };
const PREFIX = uniqueKeyPrefix();
const sha256 = (text: string) => createHash("sha256").update(text).digest("hex");
/** Writes the hash of the variable: so a log shows what the child got, and not the value. */
const SHOW = 'printf "%s" "$PASSWORD" | sha256sum; exec sleep 1000';
const REF = { PASSWORD: { secret: "db" } };

let database: Awaited<ReturnType<typeof createDatabase>>;
let db: Client;
let server: AttackedServer;
let browser: Browser;
let units: RunningUnit[];

beforeAll(async () => {
  const keyFile = join(scratchDirectory("keys"), "secret.keys");
  writeFileSync(keyFile, randomBytes(32).toString("base64"), { mode: 0o600 });
  database = await createDatabase(stores().postgresAdminUri);
  const tokens = [
    { name: "admin", role: "admin" as const },
    { name: "viewer", role: "viewer" as const },
    { name: "node", role: "node" as const },
  ];
  server = await attackServer(tokens, {
    env: {
      ...storeSettings({ postgresUri: database.uri, redisUrl: stores().redisUrl }),
      TENURE_SCHEDULER_PHASE2_REDIS_KEY_PREFIX: PREFIX,
      TENURE_AUTH_PEER_TOKEN: "secret-of-the-instances-here",
      TENURE_SERVER_SECRET_KEY_FILE: keyFile,
    },
    args: ["--log-level", "trace"],
  });
  db = new Client({ connectionString: database.uri });
  await db.connect();
  browser = await openBrowser();
  units = [];
  for (const name of ["one", "two"])
    units.push(
      await startUnit({ name, urls: [server.url], env: { HOST_TOKEN: server.secretOf("node") } }),
    );
});
afterAll(async () => {
  await browser.close();
  await Promise.all(units.map((unit) => unit.stop()));
  await db.end();
  await server.stop();
  await database.drop();
});

const api = (token: string, method: string, path: string, body?: unknown) =>
  server.as(token, method, `/api/v1${path}`, body);
const read = async (id: string) =>
  (await api("admin", "GET", `/deployments/${id}`)).body as DeploymentView;

async function create(spec: object): Promise<DeploymentView> {
  const answer = await api("admin", "POST", "/deployments", spec);
  expect(answer).toMatchObject({ status: 201 });
  return answer.body as DeploymentView;
}

const running = (id: string, than?: number) =>
  until(
    async () => {
      const { status, generation } = await read(id);
      return status.find(
        (one) =>
          one.state === "running" && !one.past && one.generation === generation && one.pid !== than,
      );
    },
    { ...PATIENT, what: `${id} to run` },
  );

async function untilLogged(id: string, text: string): Promise<void> {
  const logged = async () => {
    const { body } = await api("admin", "GET", `/deployments/${id}/logs`);
    return JSON.stringify(body).includes(text);
  };
  await until(logged, { ...PATIENT, what: `${text} in the log` });
}

function tenure(args: string[], input?: string) {
  const program = join(repositoryRoot, "packages/cli/bin/tenure.js");
  return spawnSync(process.execPath, [program, ...args], {
    ...{ input, encoding: "utf8" },
    env: { ...process.env, TENURE_URL: server.url, TENURE_TOKEN: server.secretOf("admin") },
  });
}

/** All that `GET /stream` sends from now on. */
function recordStream(): { text(): string; stop(): void } {
  const stopping = new AbortController();
  let text = "";
  void (async () => {
    const headers = { authorization: `Bearer ${server.secretOf("admin")}` };
    const response = await fetch(`${server.url}/api/v1/stream`, {
      headers,
      signal: stopping.signal,
    });
    const decoder = new TextDecoder();
    for await (const bytes of response.body!) text += decoder.decode(bytes, { stream: true });
  })().catch(() => {});
  return { text: () => text, stop: () => stopping.abort() };
}

/** Changes, a rollback, a restart, a crash, a second node, and requests that are refused with the value in them. */
async function causeWriting(web: DeploymentView): Promise<places.Places> {
  const { pid: first } = await running(web.id);
  await untilLogged(web.id, sha256(CANARY));
  await api("admin", "PATCH", `/deployments/${web.id}`, { env: { ...REF, MORE: "1" } });
  await api("admin", "POST", `/deployments/${web.id}/rollback`, {});
  await running(web.id, first ?? 0);
  await api("admin", "POST", `/deployments/${web.id}/restart`);
  const crash = 'echo "cannot connect with $PASSWORD" >/dev/null; exit 3';
  const crashing = await create({ name: "crashing", command: crash, env: REF });
  const failed = async () =>
    (await read(crashing.id)).status.some(({ exit_code }) => exit_code === 3);
  await until(failed, { ...PATIENT, what: "the crash" });
  const { address } = await read(web.id);
  const other = units.find((unit) => unit.address !== address)!;
  await api("admin", "PATCH", `/deployments/${web.id}`, { pin: other.address });
  await until(async () => (await read(web.id)).address === other.address, {
    ...PATIENT,
    what: "the deployment on the other node",
  });
  await running(web.id);
  const raw = (body: string) =>
    server.get("/api/v1/secrets/db", {
      method: "PUT",
      headers: {
        authorization: `Bearer ${server.secretOf("admin")}`,
        "content-type": "application/json",
      },
      body,
    });
  const refusals = [
    await raw(`{"value": ${CANARY}`),
    await raw(`{"value": ["${CANARY}"]}`),
    await raw(`{"value": "${CANARY}\\u0000"}`),
    await raw(`{"value": "${CANARY}${"x".repeat(65_536)}"}`),
    await raw(`{"value": "${CANARY}", "tenant": "no tenant"}`),
    await api("admin", "PUT", `/secrets/bad%20name`, { value: CANARY }),
    await api("viewer", "PUT", "/secrets/db", { value: CANARY }),
    await api("admin", "POST", "/deployments", { command: "true", env: { A: { secret: 5 } } }),
  ];
  for (const { status } of refusals) expect([400, 403]).toContain(status);
  const rotated = tenure(["secret", "rotate"]);
  expect(rotated.stdout).toContain("2 had it already");
  const listed = tenure(["secret", "ls", "--json"]);
  expect(JSON.parse(listed.stdout).items).toMatchObject([
    { name: "db", used_by: [{ name: "web" }, { name: "crashing" }] },
    { name: "other", used_by: [] },
  ]);
  return [
    ["refusals", JSON.stringify(refusals)],
    ["output of tenure secret", listed.stdout + listed.stderr + rotated.stdout],
  ];
}

test("the value of a secret is in no table, key, answer, page, log, file, argument or environment but the child's", async () => {
  expect(tenure(["secret", "set", "db"], `${CANARY}\n`)).toMatchObject({ status: 0 });
  const file = join(scratchDirectory("value"), "value");
  writeFileSync(file, CANARY);
  expect(tenure(["secret", "set", "other", "--from-file", file])).toMatchObject({ status: 0 });
  const stream = recordStream();
  const planted = await create({
    name: PLANTED,
    command: `printf '%s\\n' "$PLAIN"; sleep 1000; : ${PLANTED}`,
    env: { PLAIN: PLANTED },
  });
  await untilLogged(planted.id, PLANTED);
  const { body: job } = await api("admin", "POST", "/jobs", {
    ...{ request_id: PLANTED, pool: "nowhere", payload: PLANTED, pending_ms: 3_600_000 },
  });
  const { job_id } = job as { job_id: string };
  const web = await create({ name: "web", command: SHOW, env: REF });
  const seen = await causeWriting(web);

  seen.push(...(await places.tables(db)));
  seen.push(...(await places.redisKeys(stores().redisUrl, PREFIX)));
  for (const { id } of [web, planted])
    seen.push(...(await places.answers(server, "admin", { id, job: job_id })));
  seen.push(["stream", stream.text()]);
  stream.stop();
  for (const [name, program] of [
    ["server", server] as const,
    ...units.map((unit) => ["node-unit", unit] as const),
  ])
    seen.push([`output of ${name} ${program.pid}`, program.stdout() + program.stderr()]);
  for (const { dataDir } of [server, ...units])
    if (existsSync(dataDir!)) seen.push(...places.filesBelow(dataDir!));
  seen.push(...places.commandLines(), ...places.environments());
  seen.push(...(await places.asAnotherUser()));
  const page = await (await openWindow(browser)).newPage();
  await signIn(page, server.url, server.secretOf("admin"));
  const tabs = [web, planted].flatMap(({ id }) =>
    ["", "/logs", "/history", "/why"].map((tab) => `/deployments/${id}${tab}`),
  );
  const others = ["/", "/nodes", "/deployments", "/jobs", `/jobs/${job_id}`, "/events", "/cluster"];
  seen.push(...(await places.pages(page, server.url, [...tabs, ...others])));

  expect(seen.length).toBeGreaterThan(100);
  const found = places.placesWith(PLANTED, seen);
  const kinds = [
    "table public.deployment",
    "redis ",
    "answer of",
    "stream",
    "file ",
    "arguments of",
    "page /deployments",
    "page /jobs/",
  ];
  for (const kind of kinds)
    expect(
      found.filter((name) => name.startsWith(kind)),
      `the search finds ${kind}`,
    ).not.toEqual([]);
  // What another user sees includes the arguments, and not the environment, of the child of root.
  if (otherUser) expect(found).toContain("processes as another user");
  expect(places.placesWith(CANARY, seen)).toEqual([]);
});

test.each(["", "x", "xy"])("the search knows the value in base64 after %j", (before) => {
  const text = Buffer.from(`${before}${CANARY}, and more`).toString("base64");
  expect(places.placesWith(CANARY, [["a place", text]])).toEqual(["a place"]);
});
