import {
  type DeploymentView,
  type DeploymentWhy,
  NODE_CALLS,
  type NodeMethod,
} from "@tenure/protocol";
import { connectRawNode, createNodeKey, type RawNode } from "@tenure/testing/fleet/raw-node";
import { uniqueKeyPrefix } from "@tenure/testing/stores/redis";
import { until } from "@tenure/testing/until";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import type * as z from "zod";
import { openServer } from "../../testing/databases.ts";
import { addDeployment, assign, joinUnit, readDeployment } from "../../testing/deployments.ts";
import { startTestApp } from "../../testing/test-app.ts";
import type { App } from "../app.ts";
import { leaveNodeUnit } from "../membership/store/node-unit-store.ts";
import { sql } from "../store/sql.ts";

// Two instances over one Postgres, with tokens: what one instance does not know it must ask the other for.

const ENV = {
  TENURE_TOKENS: "admin:rule-of-the-fleet,viewer:look-at-the-fleet,node:work-in-the-fleet",
  TENURE_AUTH_PEER_TOKEN: "us",
  // The nodes of one test after another leave: that would be a mass loss.
  TENURE_MEMBERSHIP_MASS_LOSS_BRAKE: "false",
};

const NOT_EXACT = "INVALID_REQUEST";

describe("deployments on two instances", () => {
  let database: Awaited<ReturnType<typeof openServer>>;
  let a: App;
  let b: App;
  let open: RawNode[] = [];
  beforeAll(async () => {
    database = await openServer();
    const options = { postgresUri: database.uri, prefix: uniqueKeyPrefix(), env: ENV };
    [a, b] = await Promise.all([startTestApp(options), startTestApp(options)]);
    await database.db.script(`
      create table audit (id uuid, before text, after text);
      create function audit_address() returns trigger language plpgsql as $$
      begin
        insert into audit values (new.id, old.address, new.address);
        return null;
      end $$;
      create trigger audit_address after update on deployment
        for each row when (old.address <> new.address) execute function audit_address();`);
  });
  afterEach(async () => {
    await Promise.all(open.map((node) => node.close()));
    open = [];
    await database.db.script("delete from deployment; delete from audit");
    const nobody = async (app: App) =>
      ((await get(app, "/membership")) as { members: unknown[] }).members.length === 0;
    for (const app of [a, b]) await until(() => nobody(app), { what: "everybody to be gone" });
  });
  afterAll(async () => {
    await Promise.all([a.stop(), b.stop()]);
    await database.close();
  });

  async function node(app: App, changes: Parameters<RawNode["register"]>[0] = {}): Promise<Unit> {
    const raw = await connectRawNode({ url: app.url });
    await raw.register({ token: "work-in-the-fleet", trusted_package_regexp: ".*", ...changes });
    open.push(raw);
    return unitOf(raw);
  }

  test("a node claims a free row, gets its specification and reports; all instances show it", async () => {
    const { id } = await post(a, "/deployments", {
      name: "web",
      package_name: "web",
      package_version: "1.0.0",
      env: { SECRET: "s3" },
    });
    const unit = await node(b);
    const first = await unit.call("deployment.list", {});
    expect(first).toMatchObject({ answer: "full", items: [{ id, generation: 0, address: "" }] });
    expect(first.items[0]!.env).toBeUndefined();
    expect(await unit.call("deployment.claim", { candidates: [{ id, generation: 0 }] })).toEqual({
      id,
      generation: 1,
    });
    const next = await unit.call("deployment.list", { revision: first.revision });
    expect(next).toMatchObject({ answer: "delta", items: [{ id, env: { SECRET: "s3" } }] });
    await unit.call("deployment.report", {
      deployment_id: id,
      generation: 1,
      state: "running",
      pid: 5,
    });
    expect(await get(a, "/deployments/web")).toMatchObject({
      address: unit.address,
      generation: 1,
      status: [{ address: unit.address, state: "running", pid: 5 }],
    });
    expect(await get(a, "/deployments/web/why")).toMatchObject({ reasons: [{ code: "running" }] });
    expect(await get(a, "/deployments/web/fence?generation=1")).toMatchObject({ fence: "current" });
    expect(await get(a, "/deployments/web/fence?generation=0", "work-in-the-fleet")).toMatchObject({
      fence: "stale",
      generation: 1,
    });
    expect(await unit.call("deployment.list", { revision: next.revision })).toMatchObject({
      answer: "unchanged",
    });
  });

  test("every instance shows the reports of a node that left as past", async () => {
    const { id } = await post(a, "/deployments", { name: "web", command: "run" });
    const unit = await node(b, { custom_command: true });
    await unit.call("deployment.claim", { candidates: [{ id, generation: 0 }] });
    await unit.call("deployment.report", { deployment_id: id, generation: 1, state: "running" });
    const shown = async (app: App) =>
      ((await get(app, "/deployments/web")) as DeploymentView).status;
    for (const app of [a, b])
      await until(async () => (await shown(app))[0]?.past === false, { what: "a present status" });
    await open.pop()!.close();
    for (const app of [a, b])
      await until(async () => (await shown(app))[0]?.past === true, { what: "a past status" });
    expect(await shown(a)).toMatchObject([{ state: "running", generation: 1 }]);
    const { items } = (await get(a, "/deployments")) as { items: DeploymentView[] };
    expect(items).toMatchObject([{ status: [{ past: true }] }]);
  });

  test("a report of an old generation is fenced, and a claim of one is a conflict", async () => {
    const row = await addDeployment(database.db);
    const unit = await node(a);
    await assign(database.db, row.id, "x");
    const stale = { deployment_id: row.id, generation: 0, state: "running" as const };
    expect(await unit.refused("deployment.report", stale)).toBe("FENCED");
    const candidates = [{ id: row.id, generation: 0 }];
    expect(await unit.refused("deployment.claim", { candidates })).toBe("ERR_CLAIM_CONFLICT");
    await del(a, `/deployments/${row.id}`);
    expect(await unit.refused("deployment.report", stale)).toBe("NOT_FOUND");
  });

  test("a free row wakes all nodes, a claim only its owner", async () => {
    const [one, two] = [await node(a), await node(b)];
    const row = await addDeployment(database.db);
    await one.woken(1);
    await two.woken(1);
    await one.call("deployment.claim", { candidates: [{ id: row.id, generation: 0 }] });
    await one.woken(2);
    await addDeployment(database.db, { type: "daemon" });
    await two.woken(2);
    await one.woken(3); // else the patch may come in the same look, and that is one wake-up for both
    expect(two.wakes()).toBe(2);
    await post(b, `/deployments/${row.id}/rollback`, {}).catch(() => {});
    await patch(b, `/deployments/${row.id}`, { package_version: "2.0.0" });
    await one.woken(4);
    await patch(a, `/deployments/${row.id}`, { enabled: false });
    await one.woken(5);
    expect(two.wakes()).toBe(2);
  });

  test("the rows of a node that left are released by another and run there", async () => {
    const [one, two] = [await node(a), await node(b)];
    const row = await addDeployment(database.db);
    await one.call("deployment.claim", { candidates: [{ id: row.id, generation: 0 }] });
    expect(await two.call("deployment.release", { addresses: [one.address] })).toEqual({
      released: [],
    });
    await one.raw.close();
    await two.raw.receive(
      "host_event",
      ({ old, new: now }) => old?.address === one.address && !now,
    );
    expect(await two.call("deployment.release", { addresses: [one.address, "typo"] })).toEqual({
      released: [{ id: row.id, generation: 2 }],
    });
    expect(
      await two.call("deployment.claim", { candidates: [{ id: row.id, generation: 2 }] }),
    ).toEqual({ id: row.id, generation: 3 });
  });

  test("I2, R1, R13: a node of policy none writes no address", async () => {
    const free = await addDeployment(database.db);
    const lost = await addDeployment(database.db, { address: "typo" });
    const owned = await addDeployment(database.db);
    const none = await node(a, { claim_policy: "NONE" });
    await assign(database.db, owned.id, none.address);
    const draining = await node(b);
    const theirs = await addDeployment(database.db);
    await draining.call("deployment.claim", { candidates: [{ id: theirs.id, generation: 0 }] });
    await post(a, `/nodes/${draining.address}/drain`, {});
    await database.db.script("delete from audit");
    const everything = async (unit: Unit) => {
      const candidates = [free, lost, owned, theirs].flatMap(({ id }) =>
        [0, 1, 2].map((generation) => ({ id, generation })),
      );
      const codes = [
        await unit.refused("deployment.claim", { candidates }),
        await unit.refused("deployment.reserve", { candidates }),
        await unit.refused("deployment.release", { addresses: ["typo", draining.address] }),
      ];
      await unit
        .call("deployment.report", { deployment_id: owned.id, generation: 1, state: "stopped" })
        .catch(() => {});
      return codes;
    };
    expect(await everything(none)).toEqual(Array(3).fill("ERR_POLICY_DISABLED"));
    const { rows } = await database.db.query(sql`select * from audit`);
    expect(rows).toEqual([]);
    expect(await readDeployment(database.db, free.id)).toMatchObject({ address: "" });
  });

  test("a drained node hands its row over, one instance to the other", async () => {
    const [owner, next] = [await node(a), await node(b)];
    const { id } = await addDeployment(database.db, { env: { S: "1" } });
    await owner.call("deployment.claim", { candidates: [{ id, generation: 0 }] });
    await post(b, `/nodes/${owner.address}/drain`, {});
    const term = { id, generation: 1 };
    expect(await owner.refused("deployment.claim", { candidates: [term] })).toBe("CONFLICT");
    expect(await next.call("deployment.reserve", { candidates: [term] })).toEqual(term);
    expect((await next.call("deployment.list", {})).items).toMatchObject([
      { moving_to: next.address, move_state: "installing", env: { S: "1" } },
    ]);
    const report = { deployment_id: id, generation: 1 };
    await next.call("deployment.report", { ...report, state: "installing" });
    await next.call("deployment.report", { ...report, state: "stopped" });
    const sees = (unit: Unit, move_state: string) =>
      until(
        async () => (await unit.call("deployment.list", {})).items[0]?.move_state === move_state,
        {
          what: `move_state ${move_state}`,
        },
      );
    await sees(owner, "ready");
    await owner.call("deployment.report", { ...report, state: "stopped" });
    await sees(next, "stopped");
    expect(await next.call("deployment.claim", { candidates: [term] })).toEqual({
      id,
      generation: 2,
    });
    expect(await owner.refused("deployment.report", { ...report, state: "stopped" })).toBe(
      "FENCED",
    );
    const { items } = (await get(a, `/events?subject=${id}&event=deployment.moved`)) as List;
    expect(items).toMatchObject([{ details: { from: owner.address, address: next.address } }]);
  });

  test("R11, R12: bad rows written by SQL are reported once per change, and the rest goes on", async () => {
    const unit = await node(a);
    await database.db.script(`
      insert into deployment (name, package_name, type) values ('bad', 'x', 'cron');
      insert into deployment (name, package_name, type, address) values ('stray', 'x', 'daemon', 'n');
      insert into deployment (name, package_name) values ('good', 'x')`);
    const events = async (code: string) =>
      ((await get(b, `/events?code=${code}`)) as List).items.length;
    await until(async () => (await events("ERR_INVALID_TYPE")) === 1, { what: "the bad type" });
    await until(async () => (await events("ERR_DAEMON_ADDRESS_SET")) === 1, {
      what: "the address",
    });
    await database.db.script("update deployment set updated_at = tenure_now()");
    await database.db.script("update deployment set type = 'ufo' where name = 'bad'");
    await until(async () => (await events("ERR_INVALID_TYPE")) === 2, {
      what: "the second change",
    });
    expect(await events("ERR_DAEMON_ADDRESS_SET")).toBe(1);
    const { items } = await unit.call("deployment.list", {});
    expect(items.map(({ name, type }) => `${name} ${type}`).sort()).toEqual([
      "bad ufo",
      "good deployment",
      "stray daemon",
    ]);
    expect(await get(a, "/deployments/bad/why")).toMatchObject({
      reasons: [{ code: "ERR_INVALID_TYPE" }],
    });
  });

  test("two enabled daemons of one package and version raise a warning", async () => {
    const spec = { type: "daemon", package_name: "agent", package_version: "1.0.0" };
    await post(a, "/deployments", { ...spec, name: "one" });
    await post(a, "/deployments", { ...spec, name: "two", enabled: false });
    const warnings = async () => ((await get(b, "/events?event=daemon.doubled")) as List).items;
    expect(await warnings()).toEqual([]);
    await patch(a, "/deployments/two", { enabled: true });
    await until(async () => (await warnings()).length === 1, { what: "the warning" });
    expect((await warnings())[0]).toMatchObject({
      message: expect.stringContaining("agent@1.0.0"),
    });
  });

  test("the list carries samples of nodes on both instances while a row is free", async () => {
    const usage = { cpu_percent: 12, memory_percent: 3, memory_mb: 4 };
    const one = await node(a, { claim_policy: "resource_usage" });
    one.raw.send({ type: "node_heartbeat", seq: 1, running: [], resource_usage: usage });
    await one.raw.receive("node_heartbeat_ack");
    expect((await one.call("deployment.list", {})).resource_usage).toEqual({});
    await addDeployment(database.db);
    await one.woken(1);
    const sampled = async () =>
      (await one.call("deployment.list", {})).resource_usage[one.address]?.cpu_percent === 12;
    await until(sampled, { what: "the sample" });
  });

  test("a log is read and followed from the node that ran it, also through the other instance", async () => {
    const unit = await node(b);
    const { id } = await addDeployment(database.db, { name: "logs" });
    await unit.call("deployment.claim", { candidates: [{ id, generation: 0 }] });
    unit.answer("log.read", ({ file }) => ({ lines: [`file ${file}`], next: "p1", files: [0, 1] }));
    unit.answer("log.follow", () => ({}));
    unit.answer("log.stop", () => ({}));
    for (const app of [a, b]) {
      const seen = async () =>
        (await get(app, "/deployments/logs/logs?file=1&lines=5", "look-at-the-fleet")) as object;
      await until(async () => "lines" in (await seen()), { what: "the node to be known" });
      expect(await seen()).toEqual({
        deployment_id: id,
        address: unit.address,
        file: 1,
        files: [0, 1],
        lines: ["file 1"],
        next: "p1",
      });
      const stopping = new AbortController();
      const response = await fetch(`${app.url}/api/v1/deployments/logs/logs?follow&lines=1`, {
        headers: { authorization: "Bearer look-at-the-fleet" },
        signal: stopping.signal,
      });
      expect(response.headers.get("content-type")).toBe("text/event-stream");
      const asked = await unit.asked("log.follow");
      unit.raw.send({ type: "log_chunk", id: asked.id, lines: ["alive"], next: "p2" });
      let text = "";
      for await (const chunk of response.body!) {
        text += Buffer.from(chunk).toString();
        if (text.includes("alive")) break;
      }
      expect(text).toContain('data: {"lines":["alive"],"next":"p2"}');
      stopping.abort();
      expect((await unit.asked("log.stop")).params).toEqual({ id: asked.id });
      unit.forget();
    }
    await unit.raw.close();
    await until(
      async () =>
        ((await get(a, "/deployments/logs/logs")) as Failed).error?.code === "DEPENDENCY_DOWN",
      { what: "the node to be gone" },
    );
  });

  test("a row whose version is not exact, written by SQL, can still be disabled and corrected", async () => {
    await addDeployment(database.db, { name: "tagged", package_version: "latest" });
    const change = (body: object) => ask(a, "PATCH", "/deployments/tagged", body);
    expect((await change({ enabled: false })).status).toBe(200);
    expect((await change({ package_name: "other" })).status).toBe(400);
    expect((await change({ package_version: "1.0.0" })).status).toBe(200);
  });

  test("a restart reaches the node wherever it is, and is refused when nothing runs", async () => {
    const { id } = await addDeployment(database.db);
    expect(await post(a, `/deployments/${id}/restart`, {})).toMatchObject({
      error: { code: "CONFLICT" },
    });
    const unit = await node(b);
    await unit.call("deployment.claim", { candidates: [{ id, generation: 0 }] });
    unit.answer("deployment.restart", () => ({}));
    for (const app of [a, b]) {
      const restarted = async () => "id" in (await post(app, `/deployments/${id}/restart`, {}));
      await until(restarted, { what: "the restart" });
      expect((await unit.asked("deployment.restart")).params).toEqual({ deployment_id: id });
      unit.forget();
    }
  });

  test.each([
    ["POST", "/deployments", { name: "x" }, 400, "INVALID_REQUEST"],
    ["POST", "/deployments", { package_name: "x", type: "cron" }, 400, "ERR_INVALID_TYPE"],
    [
      "POST",
      "/deployments",
      { package_name: "x", type: "daemon", address: "n" },
      400,
      "ERR_DAEMON_ADDRESS_SET",
    ],
    ["POST", "/deployments", { package_name: "x", address: "n" }, 400, "INVALID_REQUEST"],
    ["POST", "/deployments", { command: "x", name: "taken" }, 409, "CONFLICT"],
    ["POST", "/deployments", { package_name: "x", env: { "A=B": "1" } }, 400, "INVALID_REQUEST"],
    ["POST", "/deployments", { package_name: "x" }, 400, "INVALID_REQUEST"],
    ["POST", "/deployments", { package_name: "x", package_version: "latest" }, 400, NOT_EXACT],
    ["POST", "/deployments", { package_name: "x", package_version: "^1.0.0" }, 400, NOT_EXACT],
    ["PATCH", "/deployments/taken", { package_version: "latest" }, 400, NOT_EXACT],
    ["PATCH", "/deployments/taken", { package_version: "" }, 400, NOT_EXACT],
    ["PATCH", "/deployments/nobody", {}, 404, "NOT_FOUND"],
    ["PATCH", "/deployments/taken", { if_revision: 9, command: "x" }, 409, "CONFLICT"],
    ["PATCH", "/deployments/taken", { type: "cron" }, 400, "ERR_INVALID_TYPE"],
    ["PATCH", "/deployments/taken", { name: "other" }, 409, "CONFLICT"],
    ["DELETE", "/deployments/nobody", undefined, 404, "NOT_FOUND"],
    ["POST", "/deployments/taken/rollback", {}, 404, "NOT_FOUND"],
    ["GET", "/deployments/taken/fence", undefined, 400, "INVALID_REQUEST"],
    ["GET", "/deployments/taken/logs", undefined, 404, "NOT_FOUND"],
    ["GET", "/deployments?limit=501", undefined, 400, "INVALID_REQUEST"],
  ])("%s %s with %j is refused with %s %s", async (method, path, body, statusCode, code) => {
    await addDeployment(database.db, { name: "taken" });
    await addDeployment(database.db, { name: "other" });
    const response = await ask(a, method, path, body);
    expect(response.status).toBe(statusCode);
    expect(await response.json()).toMatchObject({ error: { code } });
  });

  test("values of env are for admins only, and lists come in pages by name", async () => {
    for (const name of ["c", "a", "b"])
      await post(a, "/deployments", { name, command: "x", env: { KEY: "s3cret" } });
    const masked = JSON.stringify(await get(a, "/deployments", "look-at-the-fleet"));
    expect(masked).toContain("KEY");
    expect(masked).not.toContain("s3cret");
    expect(JSON.stringify(await get(a, "/deployments"))).toContain("s3cret");
    const first = (await get(b, "/deployments?limit=2")) as List<DeploymentView>;
    const second = (await get(
      b,
      `/deployments?limit=2&cursor=${first.next_cursor}`,
    )) as List<DeploymentView>;
    expect([...first.items, ...second.items].map(({ name }) => name)).toEqual(["a", "b", "c"]);
    expect(second.next_cursor).toBeNull();
  });

  test("a worker that is no node-unit has no deployments", async () => {
    const worker = await node(a, { tags: {}, pools: ["p"] });
    expect(await worker.refused("deployment.list", {})).toBe("FORBIDDEN");
    expect(await worker.refused("deployment.release", { addresses: ["x"] })).toBe("FORBIDDEN");
  });
});

test("nothing is released while the list of members may be incomplete", async () => {
  const database = await openServer();
  const { address } = createNodeKey();
  // There before this instance was, and not back yet.
  await leaveNodeUnit(database.db, await joinUnit(database.db, address));
  const row = await addDeployment(database.db, { address: "typo" });
  const app = await startTestApp({ postgresUri: database.uri });
  const raw = await connectRawNode({ url: app.url });
  await raw.register();
  const unit = unitOf(raw);
  await raw.receive("host_event", ({ view }) => view === "settling");
  const release = () => unit.call("deployment.release", { addresses: ["typo"] });
  expect(await release()).toEqual({ released: [] });
  const { reasons } = (await get(app, `/deployments/${row.id}/why`)) as DeploymentWhy;
  expect(reasons.map(({ code }) => code)).toEqual(["owner_unknown", "view_settling"]);
  await database.db.query(
    sql`update node_unit set online = true, left_at = null where address = ${address}`,
  );
  await until(async () => (await release()).released.length === 1, {
    what: "the view to be ready",
  });
  await raw.close();
  await app.stop();
  await database.close();
});

// --- what a test says and asks ---

interface List<T = { message: string; details: object }> {
  items: T[];
  next_cursor: string | null;
}
interface Failed {
  error?: { code: string };
}

type Unit = ReturnType<typeof unitOf>;

function unitOf(raw: RawNode) {
  let lastId = 0;
  async function respond(method: NodeMethod, params: object) {
    const id = ++lastId;
    raw.send({ type: "request", id, method, params });
    return raw.receive("response", (response) => response.id === id);
  }
  const answers = new Map<string, (params: never) => object>();
  const requests: { id: number; method: string; params: Record<string, unknown> }[] = [];
  raw.socket.on("message", (text) => {
    const message = JSON.parse(text.toString());
    if (message.type !== "request") return;
    requests.push(message);
    const answer = answers.get(message.method);
    if (answer)
      raw.send({ type: "response", id: message.id, result: answer(message.params as never) });
  });
  const wakes = () => raw.received.filter(({ type }) => type === "deployments_changed").length;
  return {
    raw,
    address: raw.key.address,
    wakes,
    woken: (count: number) =>
      until(() => wakes() >= count, { what: `${count} wake-ups, had ${wakes()}` }),
    async call<M extends NodeMethod>(method: M, params: z.input<(typeof NODE_CALLS)[M]["params"]>) {
      const { result, error } = await respond(method, params);
      if (error) throw new Error(`${error.code}: ${error.message}`);
      return NODE_CALLS[method].result.parse(result) as z.output<(typeof NODE_CALLS)[M]["result"]>;
    },
    async refused(method: NodeMethod, params: object): Promise<string | undefined> {
      return (await respond(method, params)).error?.code;
    },
    answer: (method: string, answer: (params: Record<string, unknown>) => object) =>
      answers.set(method, answer),
    asked: (method: string) =>
      until(() => requests.find((request) => request.method === method), { what: method }),
    forget: () => void requests.splice(0),
  };
}

function ask(app: App, method: string, path: string, body?: unknown, token = "rule-of-the-fleet") {
  return fetch(`${app.url}/api/v1${path}`, {
    method,
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
}
const get = async (app: App, path: string, token?: string): Promise<unknown> =>
  (await ask(app, "GET", path, undefined, token)).json();
const post = async (app: App, path: string, body: unknown) =>
  (await (await ask(app, "POST", path, body)).json()) as DeploymentView;
const patch = async (app: App, path: string, body: unknown) =>
  (await ask(app, "PATCH", path, body)).json();
const del = (app: App, path: string) => ask(app, "DELETE", path);
