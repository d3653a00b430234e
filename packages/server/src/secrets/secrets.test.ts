import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { DATABASES, openTestDb, type TestDb } from "../../testing/databases.ts";
import { addDeployment, joinUnit, readDeployment } from "../../testing/deployments.ts";
import { createDeliverSecrets } from "../deployments/deliver-secrets.ts";
import type { DeploymentNode } from "../deployments/deployment-node.ts";
import { claimFirstFree } from "../deployments/store/claim-store.ts";
import { changeDeployment } from "../deployments/store/deployment-store.ts";
import { listRevisions } from "../deployments/store/revision-store.ts";
import { sql } from "../store/sql.ts";
import { keyIdOf, type SecretKey, seal, unseal } from "./sealing.ts";
import { createSecrets } from "./secrets.ts";

const newKey = (): SecretKey => {
  const bytes = randomBytes(32);
  return { id: keyIdOf(bytes), bytes };
};
const TAKES = { node_unit: true, node_unit_secrets: true };
const EVERY = { tenants: ["*"], limit: 100 };

test("a value is bound to its tenant, name and version, and to its key", () => {
  const [key, other] = [newKey(), newKey()];
  const identity = { tenant: "default", name: "db", version: 1 };
  const sealed = seal("value", identity, key);
  expect(unseal(sealed, identity, key)).toBe("value");
  for (const changed of [{ tenant: "blue" }, { name: "api" }, { version: 2 }])
    expect(unseal(sealed, { ...identity, ...changed }, key)).toBeUndefined();
  expect(unseal(sealed, identity, other)).toBeUndefined();
  expect(unseal(sealed.subarray(0, 20), identity, key)).toBeUndefined();
  expect(seal("value", identity, key).equals(sealed)).toBe(false);
});

describe.each(DATABASES)("secrets on %s", (kind) => {
  let store: TestDb;
  let keys: SecretKey[];
  beforeAll(async () => {
    store = await openTestDb(kind);
  });
  afterAll(() => store.close());
  beforeEach(async () => {
    keys = [newKey()];
    await store.db.script("delete from deployment; delete from secret; delete from node_unit;");
  });

  const secrets = () =>
    createSecrets({ db: store.db, instanceId: "a", keyring: { keys: () => keys } });
  const set = (name: string, value: string, tenant = "default") =>
    secrets().set({}, { tenant, name, value });
  const uses = (name: string) => ({ env: { PASSWORD: { secret: name }, PLAIN: "1" } });

  /** A node with this connection. */
  const nodeOf = (unit: { address: string; epoch: number }, tags = TAKES): DeploymentNode => ({
    ...{ nodeId: unit.address, epoch: unit.epoch, isNodeUnit: true, link: { send() {} } },
    snapshot: {
      ...{ labels: {}, trusted_package_regexp: ".*", custom_command: true, tags },
      ...{ claim_policy: "deployment_count", tenants: ["default"] },
    },
  });
  const read = (node: DeploymentNode, { id, generation }: { id: string; generation: number }) =>
    createDeliverSecrets({ db: store.db, secrets: secrets() })(node, { id, generation });

  test("a value is neither in the table nor in the answers, and a new value has a new version", async () => {
    const first = await set("db", "canary-of-the-value");
    const second = await set("db", "another value");
    expect(second.version).toBeGreaterThan(first.version);
    const { rows } = await store.db.query(sql`select secret::text as row from secret`);
    expect(JSON.stringify([first, second, rows, await secrets().list(EVERY)])).not.toMatch(
      /canary|another|63616e617279/,
    );
  });

  test("the owner of the current term reads the value; another node, connection or term does not", async () => {
    await set("db", "hunter2");
    const owner = await joinUnit(store.db, "owner", { tags: TAKES });
    const other = await joinUnit(store.db, "other", { tags: TAKES });
    const row = await addDeployment(store.db, { ...uses("db"), address: "owner" });
    expect(await read(nodeOf(owner), row)).toEqual({ values: { db: "hunter2" } });
    await expect(read(nodeOf(other), row)).rejects.toMatchObject({ code: "FENCED" });
    await expect(read(nodeOf({ ...owner, epoch: owner.epoch - 1 }), row)).rejects.toMatchObject({
      code: "FENCED",
    });
    await expect(
      read(nodeOf(owner), { ...row, generation: row.generation - 1 }),
    ).rejects.toMatchObject({ code: "FENCED" });
    // The term ends, and the row comes back to the same node in a later one.
    await store.db.query(sql`update deployment set address = '' where id = ${row.id}`);
    await expect(read(nodeOf(owner), row)).rejects.toMatchObject({ code: "FENCED" });
    await store.db.query(sql`update deployment set address = 'owner' where id = ${row.id}`);
    await expect(read(nodeOf(owner), row)).rejects.toMatchObject({ code: "FENCED" });
    const now = await readDeployment(store.db, row.id);
    expect(await read(nodeOf(owner), now)).toEqual({ values: { db: "hunter2" } });
    await store.db.query(sql`update deployment set enabled = false where id = ${row.id}`);
    await expect(read(nodeOf(owner), now)).rejects.toMatchObject({ code: "FENCED" });
  });

  test("a daemon's values go to the nodes that may run it, and not to those of another tenant or trust", async () => {
    await set("db", "hunter2");
    const row = await addDeployment(store.db, { ...uses("db"), type: "daemon" });
    const node = await joinUnit(store.db, "node", { tags: TAKES });
    expect(await read(nodeOf(node), row)).toEqual({ values: { db: "hunter2" } });
    const unfit = nodeOf(node);
    const distrusts = { ...unfit, snapshot: { ...unfit.snapshot, trusted_package_regexp: "" } };
    await expect(read(distrusts, row)).rejects.toMatchObject({ code: "FORBIDDEN" });
    await store.db.query(sql`update node_unit set tenants = '{blue}', tenants_epoch = epoch`);
    await expect(read(nodeOf(node), row)).rejects.toMatchObject({ code: "FENCED" });
  });

  test("a node whose agent does not know secrets gets no value, and claims no deployment with one", async () => {
    await set("db", "hunter2");
    const unit = await joinUnit(store.db, "old");
    const old = nodeOf(unit, { node_unit: true } as typeof TAKES);
    const free = await addDeployment(store.db, uses("db"));
    expect(await claimFirstFree(store.db, unit, [free])).toEqual({ outcome: "conflict" });
    const plain = await addDeployment(store.db, {});
    expect(await claimFirstFree(store.db, unit, [plain])).toMatchObject({ outcome: "claimed" });
    const owned = await addDeployment(store.db, { ...uses("db"), address: "old" });
    await expect(read(old, owned)).rejects.toMatchObject({ code: "FENCED" });
  });

  test("a new value is a new version of the deployments that refer to it, and no new revision", async () => {
    const { version } = await set("db", "one");
    const row = await addDeployment(store.db, uses("db"));
    const other = await addDeployment(store.db, { tenant: "blue" });
    expect(row.secret_versions).toEqual({ db: version });
    const next = await set("db", "two");
    const after = await readDeployment(store.db, row.id);
    expect(after).toMatchObject({ secret_versions: { db: next.version }, revision: row.revision });
    expect((await readDeployment(store.db, other.id)).secret_versions).toEqual({});
    expect((await listRevisions(store.db, { id: row.id, limit: 10 })).items).toEqual([]);
    // Neither a new key nor a removal restarts anything; a secret of the same name in another tenant does not either.
    keys = [newKey(), ...keys];
    await secrets().rotate(EVERY);
    await set("db", "of blue", "blue");
    await secrets().remove({}, { tenant: "default", name: "db", force: true });
    await secrets().remove({}, { tenant: "blue", name: "db", force: true });
    await secrets().spread(undefined);
    expect((await readDeployment(store.db, row.id)).secret_versions).toEqual({ db: next.version });
    // One that is set again has a version that it never had.
    const again = await set("db", "three");
    expect(again.version).toBeGreaterThan(next.version);
    expect((await readDeployment(store.db, row.id)).secret_versions).toEqual({ db: again.version });
  });

  test("a version that was missed, because the row was being written, is brought by the sweep", async () => {
    const { version } = await set("db", "one");
    const row = await addDeployment(store.db, uses("db"));
    await store.db.query(sql`update deployment set secret_versions = '{"db": 1e400, "x": "y"}'`);
    expect(await secrets().spread(600)).toBe(1);
    expect((await readDeployment(store.db, row.id)).secret_versions).toEqual({ db: version });
    expect(await secrets().spread(600)).toBe(0);
    await store.advance(601_000);
    await store.db.query(sql`update deployment set secret_versions = '{"db": 0}'`);
    expect(await secrets().spread(600)).toBe(0);
    expect(await secrets().spread(undefined)).toBe(1);
  });

  test("a used secret is removed only by force; then its next start waits", async () => {
    await set("db", "hunter2");
    const owner = await joinUnit(store.db, "owner", { tags: TAKES });
    const row = await addDeployment(store.db, { ...uses("db"), name: "web", address: "owner" });
    const removal = { tenant: "default", name: "db", force: false };
    await expect(secrets().remove({}, removal)).rejects.toMatchObject({
      code: "CONFLICT",
      message: expect.stringContaining("web"),
    });
    await expect(secrets().remove({}, { ...removal, tenant: "blue" })).rejects.toMatchObject({
      code: "NOT_FOUND",
    });
    await secrets().remove({}, { ...removal, force: true });
    await expect(read(nodeOf(owner), row)).rejects.toMatchObject({ code: "NOT_FOUND" });
    expect(await secrets().problems("default", ["db"])).toMatchObject([{ code: "secret_missing" }]);
    expect(await secrets().missing("default", ["db"])).toEqual(["db"]);
  });

  test("a ciphertext that SQL copied to another row, version or tenant does not decrypt, and stops no other", async () => {
    await set("db", "hunter2");
    await set("mine", "of the attacker");
    await set("fine", "fine");
    const owner = await joinUnit(store.db, "owner", { tags: TAKES });
    const row = await addDeployment(store.db, { ...uses("mine"), address: "owner" });
    const fine = await addDeployment(store.db, { ...uses("fine"), address: "owner" });
    await store.db.query(sql`
      update secret set sealed = db.sealed, version = db.version, key_id = db.key_id
        from secret as db where db.name = 'db' and secret.name = 'mine'`);
    await expect(read(nodeOf(owner), row)).rejects.toMatchObject({ code: "SECRET_UNREADABLE" });
    expect(await read(nodeOf(owner), fine)).toEqual({ values: { fine: "fine" } });
    expect(await secrets().problems("default", ["mine", "fine"])).toMatchObject([
      { code: "secret_unreadable", message: expect.stringContaining("mine") },
    ]);
    await store.db.query(sql`update secret set sealed = '', key_id = 'x' where name = 'mine'`);
    await expect(read(nodeOf(owner), row)).rejects.toMatchObject({ code: "SECRET_UNREADABLE" });
    keys = [newKey(), ...keys];
    expect(await secrets().rotate(EVERY)).toMatchObject({
      ...{ rotated: 2, current: 0 },
      failed: [{ tenant: "default", name: "mine" }],
    });
    expect(await secrets().list(EVERY)).toHaveLength(3);
  });

  test("with a new first key values stay readable; after the rotation the old key is not needed", async () => {
    const former = keys[0]!;
    for (let n = 0; n < 5; n++) await set(`s${n}`, `value ${n}`);
    const owner = await joinUnit(store.db, "owner", { tags: TAKES });
    const row = await addDeployment(store.db, { ...uses("s3"), address: "owner" });
    keys = [newKey(), former];
    expect(await read(nodeOf(owner), row)).toEqual({ values: { s3: "value 3" } });
    let after: readonly [string, string] | undefined;
    const done = { rotated: 0, current: 0 };
    do {
      const page = await secrets().rotate({ tenants: ["default"], limit: 2, after });
      done.rotated += page.rotated;
      done.current += page.current;
      after = page.last && [page.last.tenant, page.last.name];
    } while (after);
    expect(done).toEqual({ rotated: 5, current: 0 });
    keys = [keys[0]!];
    expect(await read(nodeOf(owner), row)).toEqual({ values: { s3: "value 3" } });
    keys = [former];
    await expect(read(nodeOf(owner), row)).rejects.toMatchObject({
      code: "SECRET_UNREADABLE",
      message: expect.stringContaining("has no key"),
    });
  });

  test("values that would not fit into a frame are refused, and not sent", async () => {
    const names = Array.from({ length: 17 }, (_, n) => `big-${n}`);
    for (const name of names) await set(name, "\u0001".repeat(65_536));
    const owner = await joinUnit(store.db, "owner", { tags: TAKES });
    const env = Object.fromEntries(names.map((name, n) => [`V${n}`, { secret: name }]));
    const row = await addDeployment(store.db, { env, address: "owner" });
    await expect(read(nodeOf(owner), row)).rejects.toMatchObject({ code: "PAYLOAD_TOO_LARGE" });
  });

  test("an instance without keys sets, rotates and gives nothing", async () => {
    await set("db", "hunter2");
    const owner = await joinUnit(store.db, "owner", { tags: TAKES });
    const row = await addDeployment(store.db, { ...uses("db"), address: "owner" });
    keys = [];
    const noKey = { code: "SECRET_KEY_MISSING" };
    await expect(set("db", "x")).rejects.toMatchObject(noKey);
    await expect(secrets().rotate(EVERY)).rejects.toMatchObject(noKey);
    await expect(read(nodeOf(owner), row)).rejects.toMatchObject(noKey);
    expect(await secrets().problems("default", ["db"])).toMatchObject([
      { code: "secret_key_missing" },
    ]);
  });

  test("a deployment that moves to another tenant refers to that tenant's secret", async () => {
    await set("db", "of default");
    const { version } = await set("db", "of blue", "blue");
    const row = await addDeployment(store.db, uses("db"));
    const change = { tenant: "blue", ifRevision: undefined };
    const moved = await changeDeployment(store.db, row.id, change);
    expect(moved?.secret_versions).toEqual({ db: version });
  });

  test.each([
    ["[]"],
    ['"x"'],
    ["null"],
    ['{"A": {"secret": 5}, "B": [1], "C": {"secret": "db"}}'],
  ])("SQL may write %s into env", async (env) => {
    const row = await addDeployment(store.db, uses("db"));
    await store.db.query(sql`update deployment set env = ${env}::jsonb where id = ${row.id}`);
    await secrets().spread(undefined);
    const { secret_versions } = await readDeployment(store.db, row.id);
    expect(secret_versions).toEqual(env.includes("db") ? { db: 0 } : {});
  });
});
