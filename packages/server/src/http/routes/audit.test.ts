import { existsSync, readFileSync, renameSync, statSync } from "node:fs";
import { join } from "node:path";
import { ROUTE_LIST, ROUTES } from "@tenure/protocol";
import { scratchDirectory } from "@tenure/testing/scratch";
import type { TestDatabase } from "@tenure/testing/stores/database";
import { until } from "@tenure/testing/until";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openApp, openAppDatabase, type TestApp } from "../../../testing/apps.ts";
import { forgetOldAudit } from "../../audit/audit-store.ts";
import { openPostgres } from "../../store/postgres.ts";
import { sql } from "../../store/sql.ts";
import { AUDITED } from "../audited.ts";

const API = "/api/v1";
const ADMIN = { authorization: "Bearer admin-of-the-audit" };
const SIGNER = { authorization: "Bearer signer-of-the-audit" };
const PEER = { authorization: "Bearer between-the-instances" };
const file = join(scratchDirectory("audit"), "audit.jsonl");

let database: TestDatabase;
let app: TestApp;
beforeAll(async () => {
  database = await openAppDatabase();
  app = await openApp(database.uri, {
    TENURE_TOKENS: "admin:admin-of-the-audit,signer:signer-of-the-audit",
    TENURE_AUTH_PEER_TOKEN: "between-the-instances",
    TENURE_AUDIT_FILE: file,
  });
});
afterAll(async () => {
  await app.stop();
  await database.drop();
});

const write = (method: string, path: string, body: object = {}, headers: object = {}) =>
  app.ask(method, API + path, body, { ...ADMIN, ...headers });

async function entries(query = ""): Promise<Record<string, unknown>[]> {
  const { status, body } = await app.ask("GET", `${API}/audit${query}`, undefined, ADMIN);
  expect(status).toBe(200);
  return body.items;
}

const ACTOR = { name: "TENURE_TOKENS:1", role: "admin", tenant: "default", address: "127.0.0.1" };

function lines(): Record<string, unknown>[] {
  const text = existsSync(file) ? readFileSync(file, "utf8") : "";
  return text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line));
}

test("every route that writes is audited, or has a reason not to be", () => {
  const withoutEntry = {
    [ROUTES.submitJob.path]: "jobs are what the fleet is for: far too many",
    [ROUTES.enrolNode.path]: "routes/tokens.ts writes it, once the actor is known",
    [ROUTES.login.path]: "access.ts writes it, once the actor is known",
  };
  const writes = ROUTE_LIST.filter(({ method }) => method !== "GET");
  const audited = new Set([...AUDITED.keys()].map(({ method, path }) => `${method} ${path}`));
  const missing = writes.filter(({ method, path }) => !audited.has(`${method} ${path}`));
  expect(missing.map(({ path }) => path).toSorted()).toEqual(Object.keys(withoutEntry).toSorted());
});

describe("a write", () => {
  test("a write is in the audit, in its event and in the file, with its actor", async () => {
    const made = await write("POST", "/deployments", { name: "seen", command: "sleep 1" });
    await write("PATCH", "/deployments/seen", { env: { KEY: "sk_live_secret" } });
    await write("DELETE", "/deployments/seen");
    const subject = made.body.id;
    expect(await entries(`?subject=${subject}`)).toMatchObject([
      { action: "deployment.delete", outcome: "done", actor: ACTOR, subject },
      { action: "deployment.update", actor: ACTOR, details: { fields: ["env"] } },
      { action: "deployment.create", actor: ACTOR, details: { name: "seen" } },
    ]);
    const { body } = await app.ask("GET", `${API}/events?subject=${subject}`, undefined, ADMIN);
    expect(body.items.map(({ details }: { details: object }) => details)).toMatchObject([
      { generation: 0, actor: ACTOR },
      { generation: 0, revision: 2, actor: ACTOR },
      { generation: 0, revision: 1, actor: ACTOR },
    ]);
    await until(() => lines().filter((line) => line.subject === subject).length === 3, {
      what: "three lines",
    });
    expect(readFileSync(file, "utf8")).not.toContain("sk_live_secret");
    expect(statSync(file).mode & 0o777).toBe(0o600);
  });

  test("a write that the domain rejects leaves a line and no row", async () => {
    expect((await write("DELETE", "/deployments/nowhere")).status).toBe(404);
    const found = () => lines().find(({ subject }) => subject === "nowhere");
    expect(await until(found, { what: "the line" })).toMatchObject({
      action: "deployment.delete",
      outcome: "NOT_FOUND",
      actor: ACTOR,
    });
    expect(await entries("?subject=nowhere")).toEqual([]);
  });

  test("a write and its entry are committed together", async () => {
    const db = openPostgres({ uri: database.uri, poolMax: 1 });
    await db.query(sql`alter table audit_entry add constraint full_disk check (false) not valid`);
    const { status } = await write("POST", "/deployments", { name: "unseen", command: "sleep 1" });
    await db.query(sql`alter table audit_entry drop constraint full_disk`);
    await db.close();
    expect(status).toBe(500);
    expect((await write("DELETE", "/deployments/unseen")).status).toBe(404);
  });

  test("an allocation by a program leaves no entry, one by an admin does", async () => {
    const path = `${API}/signers/eip155:1:audited/nonces`;
    await app.ask("POST", path, { request_id: "by-signer" }, SIGNER);
    expect(await entries("?subject=eip155:1:audited")).toEqual([]);
    await app.ask("POST", path, { request_id: "by-admin" }, ADMIN);
    await app.ask("PUT", `${API}/signers/eip155:1:audited`, { next_nonce: 5 }, ADMIN);
    expect(await entries("?subject=eip155:1:audited")).toMatchObject([
      { action: "signer.raise", details: { next_nonce: 5 } },
      { action: "nonce.allocate", actor: ACTOR },
    ]);
  });
});

describe("a forwarded write", () => {
  const first = { name: "alice", role: "admin", tenant: "blue", address: "192.0.2.7" };
  const header = { "x-tenure-actor": encodeURIComponent(JSON.stringify(first)) };
  const raise = (next_nonce: number, headers: Record<string, string>) =>
    app.ask("PUT", `${API}/signers/eip155:1:forwarded`, { next_nonce }, headers);
  const found = (nonce: number) =>
    until(
      () =>
        lines().find(({ details }) => (details as { next_nonce?: number })?.next_nonce === nonce),
      { what: "the line" },
    );

  test("a forwarded write keeps its first actor, and the first instance writes the row", async () => {
    await raise(1, { ...PEER, ...header, "x-tenure-forwarded": "i-1" });
    expect(await found(1)).toMatchObject({ actor: first, details: { forwarded_by: "i-1" } });
    expect(await entries("?subject=eip155:1:forwarded")).toEqual([]);
  });

  test("a write forwarded by 0.1.0, which sends no actor, has the peer as actor", async () => {
    await raise(2, { ...PEER, "x-tenure-forwarded": "i-1" });
    expect(await entries("?subject=eip155:1:forwarded")).toMatchObject([
      { actor: { role: "peer" }, details: { forwarded_by: "i-1" } },
    ]);
  });

  test("an admin cannot forge a forwarded write", async () => {
    await raise(3, { ...ADMIN, ...header, "x-tenure-forwarded": "i-1" });
    expect((await entries("?subject=eip155:1:forwarded"))[0]).toMatchObject({ actor: ACTOR });
  });
});

test("only admins read the audit, page by page", async () => {
  for (let n = 0; n < 3; n++) await write("POST", "/membership/release");
  const page = await app.ask("GET", `${API}/audit?limit=2`, undefined, ADMIN);
  const [, last] = page.body.items;
  expect(page.body.next_cursor).toBe(String(last.id));
  const next = await app.ask("GET", `${API}/audit?limit=2&cursor=${last.id}`, undefined, ADMIN);
  expect(next.body.items[0].id).toBeLessThan(last.id);
  expect((await app.ask("GET", `${API}/audit?cursor=%00`, undefined, ADMIN)).status).toBe(400);
  expect((await app.ask("GET", `${API}/audit`, undefined, SIGNER)).status).toBe(403);
});

test("a file that was moved away is followed by a new one", async () => {
  renameSync(file, `${file}.1`);
  await write("DELETE", "/deployments/after-the-move");
  const found = () => lines().find(({ subject }) => subject === "after-the-move");
  await until(found, { what: "the line in the new file" });
});

test("a file that cannot be written stops the start", async () => {
  const env = { TENURE_AUDIT_FILE: "/nowhere/audit.jsonl" };
  await expect(openApp(database.uri, env)).rejects.toThrow("audit.file cannot be written");
});

test("Postgres keeps the newest entries, up to an age and a number", async () => {
  for (let n = 0; n < 6; n++) await write("POST", "/membership/release");
  const newest = (await entries()).map(({ id }) => id);
  const db = openPostgres({ uri: database.uri, poolMax: 1 });
  await forgetOldAudit(db, { days: 1, entriesMax: 4 });
  expect((await entries()).map(({ id }) => id)).toEqual(newest.slice(0, 4));
  await db.query(
    sql`update audit_entry set at = at - interval '2 days' where id < ${newest[0] as number}`,
  );
  await forgetOldAudit(db, { days: 1, entriesMax: 4 });
  expect((await entries()).map(({ id }) => id)).toEqual(newest.slice(0, 1));
  await db.close();
});
