import { spawnSync } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { DeploymentView, DeploymentWhy, SecretView } from "@tenure/protocol";
import { type RunningUnit, startUnit } from "@tenure/testing/fleet/node-unit";
import { storeSettings } from "@tenure/testing/fleet/running-server";
import { repositoryRoot } from "@tenure/testing/repository";
import { scratchDirectory } from "@tenure/testing/scratch";
import { createDatabase } from "@tenure/testing/stores/database";
import { stores } from "@tenure/testing/stores/stores";
import { until } from "@tenure/testing/until";
import { Client } from "pg";
import { afterAll, beforeAll, beforeEach, expect, test, vi } from "vitest";
import { rawUnit } from "./raw-unit.ts";
import { type AttackedServer, type AttackToken, attackServer } from "./scene.ts";

// A secret must be readable by the node that runs the deployment, and nowhere else.

vi.setConfig({ testTimeout: 240_000, hookTimeout: 240_000 });

const TOKENS: AttackToken[] = [
  { name: "admin", role: "admin" },
  { name: "viewer", role: "viewer" },
  { name: "node", role: "node" },
  { name: "blue-admin", role: "admin", tenant: "blue" },
];
const PEERS = { TENURE_AUTH_PEER_TOKEN: "secret-of-the-instances-here" };
const PATIENT = { deadlineMs: 60_000, everyMs: 100 };
const CANARY = `canary-${randomBytes(12).toString("hex")}`;
const TAKES = { node_unit: true, node_unit_secrets: true };
const sha256 = (text: string) => createHash("sha256").update(text).digest("hex");
/** Writes the hash of the variable: so a log shows what the child got, and not the value. */
const SHOW = 'printf "%s" "$PASSWORD" | sha256sum; exec sleep 1000';
const REF = { PASSWORD: { secret: "db" } };

let database: Awaited<ReturnType<typeof createDatabase>>;
let db: Client;
let server: AttackedServer;
let units: RunningUnit[];
let keyFile: string;

const writeKeys = (...keys: string[]) => {
  writeFileSync(`${keyFile}.new`, `# the keys\n${keys.join("\n")}\n`, { mode: 0o600 });
  renameSync(`${keyFile}.new`, keyFile);
};
const firstKey = randomBytes(32).toString("base64");

beforeAll(async () => {
  keyFile = join(scratchDirectory("keys"), "secret.keys");
  writeKeys(firstKey);
  database = await createDatabase(stores().postgresAdminUri);
  const env = storeSettings({ postgresUri: database.uri });
  server = await attackServer(TOKENS, {
    env: { ...env, ...PEERS, TENURE_SERVER_SECRET_KEY_FILE: keyFile },
  });
  db = new Client({ connectionString: database.uri });
  await db.connect();
  units = [];
  for (const name of ["one", "two"])
    units.push(
      await startUnit({ name, urls: [server.url], env: { HOST_TOKEN: server.secretOf("node") } }),
    );
});
afterAll(async () => {
  await Promise.all(units.map((unit) => unit.stop()));
  await db.end();
  await server.stop();
  await database.drop();
});

beforeEach(() => db.query("delete from deployment"));

const api = (token: string, method: string, path: string, body?: unknown) =>
  server.as(token, method, `/api/v1${path}`, body);

async function set(name: string, value: string): Promise<SecretView> {
  const answer = await api("admin", "PUT", `/secrets/${name}`, { value });
  expect(answer).toMatchObject({ status: 200 });
  return answer.body as SecretView;
}

async function create(spec: object): Promise<DeploymentView> {
  const answer = await api("admin", "POST", "/deployments", spec);
  expect(answer).toMatchObject({ status: 201 });
  return answer.body as DeploymentView;
}

const read = async (id: string) =>
  (await api("admin", "GET", `/deployments/${id}`)).body as DeploymentView;
const remove = (id: string) => api("admin", "DELETE", `/deployments/${id}`);
const why = async (id: string) =>
  (await api("admin", "GET", `/deployments/${id}/why`)).body as DeploymentWhy;

async function logOf(id: string, node?: string): Promise<string> {
  const query = node === undefined ? "" : `?node=${node}`;
  const { body } = await api("admin", "GET", `/deployments/${id}/logs${query}`);
  return ((body as { lines?: string[] }).lines ?? []).join("\n");
}

function running(id: string, than?: number): Promise<DeploymentView["status"][number]> {
  const found = async () => {
    const { status, generation } = await read(id);
    return status.find(
      (one) =>
        one.state === "running" && !one.past && one.generation === generation && one.pid !== than,
    );
  };
  return until(found, { ...PATIENT, what: `${id} to run` });
}

const untilLogged = (id: string, text: string, node?: string) =>
  until(async () => (await logOf(id, node)).includes(text), {
    ...PATIENT,
    what: `${text} in the log`,
  });

function tenure(args: string[], input?: string) {
  return spawnSync(
    process.execPath,
    [join(repositoryRoot, "packages/cli/bin/tenure.js"), ...args],
    {
      ...{ input, encoding: "utf8" },
      env: { ...process.env, TENURE_URL: server.url, TENURE_TOKEN: server.secretOf("admin") },
    },
  );
}

test("what a child wrote before it crashed is reported without the value", async () => {
  await set("crash", CANARY);
  const crash = 'echo "cannot connect with $PASSWORD to the database" >&2; exit 3';
  const { id } = await create({ command: crash, env: { PASSWORD: { secret: "crash" } } });
  const failed = async () => {
    const { status } = await read(id);
    return status.find(({ state, last_error }) => state === "backoff" && last_error)?.last_error;
  };
  const text = await until(failed, { ...PATIENT, what: "the crash" });
  expect(text).toContain("cannot connect with *** to the database");
  await remove(id);
});

test("a node that does not own the deployment reads nothing, nor does its former owner", async () => {
  await set("db", "hunter2");
  const thief = await rawUnit(server, "node", {
    ...{ tags: TAKES, claim_policy: "none", custom_command: true },
  });
  const web = await create({ name: "web", command: SHOW, env: REF });
  const { generation, address } = await running(web.id);
  const steal = (term: number) =>
    thief.call("deployment.secrets", { id: web.id, generation: term });
  for (const term of [generation, generation - 1, generation + 1])
    await expect(steal(term)).rejects.toThrow("FENCED");
  const list = await thief.raw.call("deployment.list", {});
  expect(JSON.stringify(list)).not.toContain('"secret":');
  // The row comes to the thief by hand, in a later term: the former term stays over, also for itself.
  await db.query("update deployment set address = $1 where id = $2", [thief.address, web.id]);
  await expect(steal(generation)).rejects.toThrow("FENCED");
  expect(await steal(generation + 1)).toEqual({ values: { db: "hunter2" } });
  await db.query("update deployment set address = $1 where id = $2", [address, web.id]);
  await expect(steal(generation + 1)).rejects.toThrow("FENCED");
  await expect(steal(generation + 2)).rejects.toThrow("FENCED");
  await thief.raw.close();
  await remove(web.id);
});

test("a new value starts the children again; a new key starts none", async () => {
  await set("db", "one");
  const web = await create({ name: "web", command: SHOW, env: REF });
  const daemon = await create({ name: "agent", type: "daemon", command: SHOW, env: REF });
  const first = await running(web.id);
  for (const { address } of units) await untilLogged(daemon.id, sha256("one"), address);
  await set("db", "two");
  const second = await running(web.id, first.pid ?? 0);
  await untilLogged(web.id, sha256("two"));
  for (const { address } of units) await untilLogged(daemon.id, sha256("two"), address);
  expect(second).toMatchObject({ generation: first.generation, restarts: 0 });
  expect(second.spec_hash).not.toBe(first.spec_hash);
  expect((await read(web.id)).revision).toBe(web.revision);

  // Rolled without a stop: every instance knows the key before it is the first one.
  const nextKey = randomBytes(32).toString("hex");
  writeKeys(nextKey, firstKey);
  await until(async () => /[1-9]\d* encrypted/.test(tenure(["secret", "rotate"]).stdout), {
    ...PATIENT,
    what: "the new key",
  });
  writeKeys(nextKey);
  const { rows } = await db.query("select distinct key_id from secret");
  expect(rows).toHaveLength(1);
  await api("admin", "POST", `/deployments/${daemon.id}/restart`);
  await until(async () => (await logOf(daemon.id, units[0]!.address)).split("\n").length >= 3, {
    ...PATIENT,
    what: "a start with the new key alone",
  });
  expect(await logOf(daemon.id, units[0]!.address)).toMatch(
    new RegExp(`${sha256("two")}.*\\n${sha256("two")}`),
  );
  expect(await running(web.id)).toMatchObject({ pid: second.pid, spec_hash: second.spec_hash });
  await remove(web.id);
  await remove(daemon.id);
});

test("a removed secret leaves the child running; the next start waits, and goes on when it is set again", async () => {
  const unknown = await api("admin", "POST", "/deployments", {
    ...{ command: SHOW, env: { PASSWORD: { secret: "nothing" } } },
  });
  expect(unknown).toMatchObject({ status: 400 });
  expect(JSON.stringify(unknown.body)).toContain("env.PASSWORD");
  // Of another tenant it is as good as none.
  await api("blue-admin", "PUT", "/secrets/nothing", { value: "of blue" });
  expect(
    await api("admin", "POST", "/deployments", {
      ...{ command: SHOW, env: { PASSWORD: { secret: "nothing" } } },
    }),
  ).toMatchObject({ status: 400 });

  await set("db", "one");
  const web = await create({ name: "web", command: SHOW, env: REF });
  const { pid } = await running(web.id);
  expect(await api("admin", "DELETE", "/secrets/db")).toMatchObject({ status: 409 });
  expect(await api("blue-admin", "DELETE", "/secrets/db?force")).toMatchObject({ status: 404 });
  expect(await api("admin", "DELETE", "/secrets/db?force")).toMatchObject({ status: 204 });
  const after = await why(web.id);
  expect(after.reasons.map(({ code }) => code)).toEqual(["running", "secret_missing"]);
  expect(await running(web.id)).toMatchObject({ pid });
  await api("admin", "POST", `/deployments/${web.id}/restart`);
  const held = async () => {
    const [status] = (await read(web.id)).status.filter(({ past }) => !past);
    return status?.state === "failed" && status;
  };
  const status = await until(held, { ...PATIENT, what: "the start to wait" });
  expect(status).toMatchObject({ pid: null, restarts: 0 });
  expect(status.last_error).toContain("waits for its secrets: secret db does not exist");
  expect((await why(web.id)).answer).toContain("secret db does not exist in tenant default");
  // It may be disabled, although its secret does not exist.
  expect(await api("admin", "PATCH", `/deployments/${web.id}`, { lost_after_ms: 5 })).toMatchObject(
    { status: 200 },
  );
  await set("db", "two");
  await running(web.id);
  await untilLogged(web.id, sha256("two"));
  await remove(web.id);
});

test("a row that SQL broke holds back its own deployments, and the server goes on", async () => {
  await set("broken", "x");
  await set("db", "fine");
  await db.query("update secret set sealed = '\\x00', key_id = 'nonsense' where name = 'broken'");
  const bad = await create({ command: SHOW, env: { PASSWORD: { secret: "broken" } } });
  const good = await create({ command: SHOW, env: REF });
  await running(good.id);
  await until(async () => (await why(bad.id)).reasons[0]?.code === "secret_unreadable", {
    ...PATIENT,
    what: "the reason",
  });
  const rotation = await api("admin", "POST", "/secrets/rotate");
  expect(rotation.body).toMatchObject({ failed: [{ name: "broken" }] });
  expect(await api("admin", "GET", "/secrets")).toMatchObject({ status: 200 });
  await set("broken", "mended");
  await untilLogged(bad.id, sha256("mended"));
  await remove(bad.id);
  await remove(good.id);
});

test("an agent that does not know secrets is not given the deployment, and why says so", async () => {
  await set("db", "hunter2");
  const old = await rawUnit(server, "node", { custom_command: true });
  const web = await create({ name: "web", command: SHOW, env: REF, pin: old.address });
  const { result } = await old.raw.call("deployment.list", {});
  const { items } = result as { items: { id: string; env?: unknown; selector: object }[] };
  const row = items.find(({ id }) => id === web.id);
  expect(row?.env).toBeUndefined();
  expect(row?.selector).toMatchObject({ "tenure/needs-an-agent-with-secrets": "true" });
  expect(JSON.stringify(items)).not.toContain('"secret"');
  expect((await why(web.id)).reasons[0]).toMatchObject({ code: "not_reported" });
  await api("admin", "PATCH", `/deployments/${web.id}`, { enabled: false });
  await db.query("update deployment set address = '' where id = $1", [web.id]);
  await api("admin", "PATCH", `/deployments/${web.id}`, { enabled: true });
  await db.query("update deployment set address = '', selector = '{}' where id = $1", [web.id]);
  const { generation } = await read(web.id);
  const claimed = await old.raw.call("deployment.claim", {
    candidates: [{ id: web.id, generation }],
  });
  expect(claimed.error?.code).toBe("ERR_CLAIM_CONFLICT");
  const view = await read(web.id);
  expect(
    await old.raw.call("deployment.secrets", { id: web.id, generation: view.generation }),
  ).toMatchObject({ error: { code: "FENCED" } });
  await old.raw.close();
  await remove(web.id);
});

test("an instance without the key file says so, and its nodes start nothing that needs a secret", async () => {
  await set("db", "hunter2");
  const env = storeSettings({ postgresUri: database.uri });
  const keyless = await attackServer(TOKENS, {
    env: { ...env, ...PEERS },
  });
  const unit = await startUnit({
    ...{ name: "three", urls: [keyless.url] },
    env: { HOST_TOKEN: server.secretOf("node") },
  });
  const refused = await keyless.as("admin", "PUT", "/api/v1/secrets/db", { value: "x" });
  expect(refused).toMatchObject({ status: 503, body: { error: { code: "SECRET_KEY_MISSING" } } });
  const web = await create({ name: "web", command: SHOW, env: REF, pin: unit.address });
  const held = async () =>
    (await read(web.id)).status.some(({ last_error }) => last_error?.includes("secret_key_file"));
  await until(held, { ...PATIENT, what: "the start to wait" });
  const answer = await keyless.as("admin", "GET", `/api/v1/deployments/${web.id}/why`);
  expect((answer.body as DeploymentWhy).reasons[0]?.code).toBe("secret_key_missing");
  await remove(web.id);
  await unit.stop();
  await keyless.stop();
});
