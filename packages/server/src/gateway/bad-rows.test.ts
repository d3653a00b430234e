import {
  DeploymentView,
  DeploymentWhy,
  listOf,
  NODE_CALLS,
  type NodeMethod,
  NodeView,
} from "@tenure/protocol";
import { connectRawNode, createNodeKey, type RawNode } from "@tenure/testing/fleet/raw-node";
import { until } from "@tenure/testing/until";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import * as z from "zod";
import { openServer } from "../../testing/databases.ts";
import { addDeployment, joinUnit } from "../../testing/deployments.ts";
import { startTestApp } from "../../testing/test-app.ts";
import type { App } from "../app.ts";
import { leaveNodeUnit } from "../membership/store/node-unit-store.ts";
import { sql } from "../store/sql.ts";

// R11: what SQL writes past the API. Answers are parsed as a whole here, as an agent and a client of 0.1.0 do.

const ENV = {
  TENURE_MEMBERSHIP_MASS_LOSS_BRAKE: "false",
  TENURE_LIMITS_WS_FRAME_BYTES: "1048576",
};
const GOOD = { package_name: "web", package_version: "1.0.0", env: { A: "1" } };

/** Every column that takes more than the API does. The first part of a name is the column that is named as bad. */
const BAD = {
  "lost_after_ms negative": "lost_after_ms = -1",
  "selector of numbers": `selector = '{"gpu": 1}'`,
  "selector no object": `selector = '[1]'`,
  "env of numbers": `env = '{"PORT": 8080}'`,
  "env null": `env = 'null'`,
  "env huge": `env = jsonb_build_object('A', repeat('x', 1100000))`,
  "args of numbers": `args = '[1]'`,
  "args no list": `args = '"x"'`,
  "command huge": `command = repeat('x', 1100000)`,
  "package_name huge": `package_name = repeat('x', 1100000)`,
  "package_version huge": `package_version = repeat('x', 1100000)`,
  "type unknown": `type = 'cron'`,
  "type huge": `type = repeat('x', 1100000)`,
  "name huge": `name = repeat('y', 5000)`,
  "revision negative": "revision = -5",
  "created_at infinity": "created_at = 'infinity'",
  "updated_at before Christ": "updated_at = '0044-03-15 BC'",
  "created_at far": "created_at = '20000-01-01'",
} as const;

describe("bad rows of deployments", () => {
  let database: Awaited<ReturnType<typeof openServer>>;
  let app: App;
  let owner: Unit;
  let other: Unit;
  const rows = new Map<string, string>();

  beforeAll(async () => {
    database = await openServer();
    app = await startTestApp({ postgresUri: database.uri, env: ENV });
    owner = await unit(app);
    other = await unit(app);
    for (const name of Object.keys(BAD)) {
      const { id } = await addDeployment(database.db, { ...GOOD, name: name.replaceAll(" ", "-") });
      rows.set(name, id);
      await owner.call("deployment.claim", { candidates: [{ id, generation: 0 }] });
      await owner.call("deployment.report", { deployment_id: id, generation: 1, state: "running" });
    }
    for (const [name, change] of Object.entries(BAD))
      await database.db.script(`update deployment set ${change} where id = '${rows.get(name)}'`);
    // Never owned, so nothing of it runs anywhere.
    await database.db.script(`
      insert into deployment (name, command, enabled, lost_after_ms) values ('disabled', 'true', false, -1);
      insert into deployment (name, command, generation) values ('term-negative', 'true', -1);
      insert into deployment (name, command, generation) values ('term-huge', 'true', 9223372036854775807);
      insert into deployment (name, command, address) values ('address-huge', 'true', repeat('z', 5000));
      insert into deployment (name, command, env) values ('never-good', 'true', '{"A": 1}')`);
  });
  afterAll(async () => {
    await Promise.all([owner.raw.close(), other.raw.close()]);
    await app.stop();
    await database.close();
  });

  test("bad rows stop no claim and no failover of other rows", async () => {
    const lost = await joinUnit(database.db, createNodeKey().address);
    const good = await addDeployment(database.db, { ...GOOD, name: "good", address: lost.address });
    await leaveNodeUnit(database.db, lost);
    const { released } = await until(
      async () => {
        const answer = await other.call("deployment.release", { addresses: [lost.address] });
        return answer.released.length > 0 && answer;
      },
      { what: "the release" },
    );
    expect(released).toEqual([{ id: good.id, generation: 2 }]);
    const { items } = await other.call("deployment.list", {});
    expect(items.filter(({ address }) => address === "").map(({ name }) => name)).toEqual(["good"]);
    await other.call("deployment.claim", { candidates: released });
  });

  test.each(
    Object.keys(BAD),
  )("%s: its owner goes on with the last valid specification", async (name) => {
    const { items, skipped } = await owner.call("deployment.list", {});
    const id = rows.get(name)!;
    expect(skipped).toBeUndefined();
    expect(items.find((item) => item.id === id)).toMatchObject({
      ...GOOD,
      type: "deployment",
      address: owner.address,
      generation: 1,
      moving_to: "",
      selector: {},
      lost_after_ms: 0,
    });
    const { items: seen } = await other.call("deployment.list", {});
    expect(seen.some((item) => item.id === id)).toBe(false);
  });

  test.each(Object.keys(BAD))("%s: the API shows it and why names the column", async (name) => {
    const column = name.split(" ", 1)[0]!;
    const code = name === "type unknown" ? "ERR_INVALID_TYPE" : "ERR_INVALID_ROW";
    const view = DeploymentView.parse(await get(app, `/deployments/${rows.get(name)}`));
    if (code === "ERR_INVALID_ROW") expect(view.invalid?.[0]?.path.split(".")[0]).toBe(column);
    const why = DeploymentWhy.parse(await get(app, `/deployments/${rows.get(name)}/why`));
    expect(why.reasons.map((reason) => reason.code)).toEqual([code, "running"]);
    const { items } = Events.parse(
      await get(app, `/events?subject=${rows.get(name)}&code=${code}`),
    );
    expect(items).toHaveLength(1);
  });

  test("a list with bad rows reaches its end", async () => {
    const names: string[] = [];
    let cursor: string | null = null;
    do {
      const query: string = cursor === null ? "" : `&cursor=${encodeURIComponent(cursor)}`;
      const page = listOf(DeploymentView).parse(await get(app, `/deployments?limit=3${query}`));
      names.push(...page.items.map(({ name }) => name));
      cursor = page.next_cursor;
    } while (cursor !== null);
    expect(new Set(names).size).toBe(names.length);
    const { rows: all } = await database.db.query(sql`select id from deployment`);
    expect(names).toHaveLength(all.length);
  });

  test("another instance, and the same one after a restart, sends the owner the same row", async () => {
    const second = await startTestApp({ postgresUri: database.uri, env: ENV });
    const again = await unit(second);
    await database.db.query(sql`
      update deployment set address = ${again.address} where address = ${owner.address}`);
    const { items } = await until(
      async () => {
        const answer = await again.call("deployment.list", {});
        return answer.items.length >= rows.size && answer;
      },
      { what: "its rows" },
    );
    const own = items.filter(({ address }) => address === again.address);
    expect(own).toHaveLength(rows.size);
    for (const item of own) expect(item).toMatchObject(GOOD);
    await database.db.query(sql`
      update deployment set address = ${owner.address} where address = ${again.address}`);
    await again.raw.close();
    await second.stop();
  });

  test("a bad status row is left out and reported once", async () => {
    const { id } = await addDeployment(database.db, { ...GOOD, name: "reported" });
    await database.db.script(`
      insert into deployment_status (deployment_id, address, state, generation, restarts, started_at, last_error) values
        ('${id}', 'a', 'flying', 0, 0, null, null), ('${id}', 'b', 'running', 0, -1, null, null),
        ('${id}', 'c', 'running', 9223372036854775807, 0, null, null),
        ('${id}', 'd', 'running', 0, 0, 'infinity', null),
        ('${id}', 'e', 'running', 0, 0, null, repeat('x', 100000)),
        ('${id}', repeat('f', 400), 'running', 0, 0, null, null),
        ('${id}', 'good', 'running', 0, 0, null, null)`);
    for (let nth = 0; nth < 2; nth++) {
      const view = DeploymentView.parse(await get(app, "/deployments/reported"));
      expect(view.status.map(({ address }) => address)).toEqual(["good"]);
    }
    const { items } = Events.parse(await get(app, `/events?subject=${id}&event=status.skipped`));
    expect(items).toHaveLength(6);
  });

  test("a rollback skips an invalid revision, and rejects it when it is named", async () => {
    const { id } = await addDeployment(database.db, { ...GOOD, name: "back" });
    await database.db.script(`
      update deployment set lost_after_ms = -1 where id = '${id}';
      update deployment set lost_after_ms = 5, command = 'now' where id = '${id}';
      insert into deployment_revision (deployment_id, revision, spec) values ('${id}', 0, '7')`);
    const revisions = listOf(z.object({ revision: z.number() }));
    const listed = revisions.parse(await get(app, "/deployments/back/revisions"));
    expect(listed.items.map(({ revision }) => revision)).toEqual([1]);
    expect(await post(app, "/deployments/back/rollback", { revision: 2 })).toMatchObject({
      error: { code: "ERR_INVALID_ROW" },
    });
    expect(await post(app, "/deployments/back/rollback", {})).toMatchObject({
      ...GOOD,
      command: "",
      lost_after_ms: 0,
    });
  });

  test.each([
    ["labels of numbers", `labels = '{"gpu": 1}'`],
    ["labels null", `labels = 'null'`],
    ["tags no object", `tags = '[1]'`],
    ["claim_policy no name", `claim_policy = 'u g h'`],
  ])("node_unit %s: it stays a member with its last valid traits, and so do the others", async (name, change) => {
    await database.db.script(`update node_unit set ${change} where address = '${other.address}'`);
    const path = `/events?subject=${other.address}&event=node.skipped`;
    const column = name.split(" ", 1)[0]!;
    await until(
      async () =>
        Events.parse(await get(app, path)).items.some(({ message }) => message.includes(column)),
      { what: "the event" },
    );
    const { members } = await owner.call("member.list", {});
    expect(members.find(({ address }) => address === other.address)).toMatchObject({
      ...{ labels: {}, claim_policy: "deployment_count", tags: { node_unit: true } },
    });
    listOf(NodeView).parse(await get(app, "/nodes"));
    await database.db.script(`
      update node_unit set labels = '{}', tags = '{"node_unit": true}', claim_policy = 'deployment_count'
       where address = '${other.address}'`);
  });

  test("an epoch beyond 2^53 of a node-unit that left: the list of nodes still answers", async () => {
    const far = "f".repeat(40);
    await database.db.script(`
      insert into node_unit (address, name, instance_id, boot_id, epoch, online, presence_expires_at, left_at, joined_at)
      values ('${far}', 'far', 'x', gen_random_uuid(), 9223372036854775807, false, now(), now(), now())`);
    const { items } = listOf(NodeView).parse(await get(app, "/nodes"));
    expect(items.map(({ node_id }) => node_id)).toContain(far);
    await database.db.script(`delete from node_unit where address = '${far}'`);
  });

  test("a PATCH corrects the row, and the nodes see it", async () => {
    const id = rows.get("lost_after_ms negative")!;
    const answer = await fetch(`${app.url}/api/v1/deployments/${id}`, {
      method: "PATCH",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ lost_after_ms: 0 }),
    });
    expect(DeploymentView.parse(await answer.json()).invalid).toBeUndefined();
    const { items } = await other.call("deployment.list", {});
    expect(items.some((item) => item.id === id)).toBe(true);
  });
});

const Events = z.object({ items: z.array(z.object({ message: z.string() })) });

type Unit = Awaited<ReturnType<typeof unit>>;

async function unit(app: App) {
  const raw: RawNode = await connectRawNode({ url: app.url });
  await raw.register({ trusted_package_regexp: ".*" });
  let lastId = 0;
  return {
    raw,
    address: raw.key.address,
    async call<M extends NodeMethod>(method: M, params: object) {
      const id = ++lastId;
      raw.send({ type: "request", id, method, params });
      const { result, error } = await raw.receive("response", (response) => response.id === id);
      if (error) throw new Error(`${error.code}: ${error.message}`);
      return NODE_CALLS[method].result.parse(result) as z.infer<(typeof NODE_CALLS)[M]["result"]>;
    },
  };
}

const get = async (app: App, path: string): Promise<unknown> =>
  (await fetch(`${app.url}/api/v1${path}`)).json();

async function post(app: App, path: string, body: unknown): Promise<unknown> {
  const answer = await fetch(`${app.url}/api/v1${path}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  return answer.json();
}
