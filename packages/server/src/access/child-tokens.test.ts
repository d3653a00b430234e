import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { DATABASES, openTestDb, type TestDb } from "../../testing/databases.ts";
import { addDeployment } from "../../testing/deployments.ts";
import { tokenSha256 } from "../config.ts";
import type { Db } from "../store/db.ts";
import { sql } from "../store/sql.ts";
import { createChildTokens } from "./child-tokens.ts";

describe.each(DATABASES)("tokens of children on %s", (kind) => {
  let store: TestDb;
  beforeAll(async () => {
    store = await openTestDb(kind);
  });
  afterAll(() => store.close());

  const presented = (secret: string) => ({ secret, sha256: tokenSha256(secret) });
  const find = (secret: string, db: Db = store.db) => createChildTokens(db).find(presented(secret));
  const make = async (term: { id: string; generation: number }) =>
    (await createChildTokens(store.db).maker())(term);
  const over = { code: "UNAUTHENTICATED", message: expect.stringContaining("is over") };

  test("a token is good for its deployment in its term, and for what the row grants now", async () => {
    const grants = { pools: ["p"], signers: ["eip155:1:*"] };
    const row = await addDeployment(store.db, { grants, address: "a", name: "web" });
    const token = await make(row);
    expect(token).toBe(await make(row));
    const principal = { role: "child", tenant: "default", deployment: { id: row.id, name: "web" } };
    expect(await find(token)).toMatchObject({ ...principal, ...grants });
    await store.db.query(sql`update deployment set grants = '{"pools": 5}' where id = ${row.id}`);
    expect(await find(token)).toMatchObject({ ...principal, pools: [], signers: [] });
    await store.db.query(sql`update deployment set address = 'b' where id = ${row.id}`);
    await expect(find(token)).rejects.toMatchObject(over);
    expect(await find(await make({ ...row, generation: row.generation + 1 }))).toMatchObject(
      principal,
    );
    await store.db.query(sql`delete from deployment where id = ${row.id}`);
    await expect(find(token)).rejects.toMatchObject(over);
  });

  test("a disabled or released deployment has no token, a daemon has one", async () => {
    const row = await addDeployment(store.db, { address: "a" });
    const token = await make(row);
    await store.db.query(sql`update deployment set enabled = false where id = ${row.id}`);
    await expect(find(token)).rejects.toMatchObject(over);
    const free = await addDeployment(store.db);
    await expect(find(await make(free))).rejects.toMatchObject(over);
    const daemon = await addDeployment(store.db, { type: "daemon" });
    expect(await find(await make(daemon))).toMatchObject({ role: "child" });
  });

  test("a changed or invented token costs no statement about a deployment", async () => {
    const row = await addDeployment(store.db, { address: "a" });
    const token = await make(row);
    const { rows } = await store.db.query<{ key: string }>(sql`select key from child_token_key`);
    let statements = 0;
    const counting = {
      ...store.db,
      async query() {
        statements += 1;
        return { rows, rowCount: 1 };
      },
    } as unknown as Db;
    const tokens = createChildTokens(counting);
    for (const changed of [
      token.slice(0, -1),
      `${token}A`,
      token.replace("tnrc_", "tnr_"),
      token.slice(0, 20) + (token[20] === "A" ? "B" : "A") + token.slice(21),
      token.slice(0, -4) + (token.endsWith("AAAA") ? "BBBB" : "AAAA"),
      `tnrc_${"A".repeat(75)}`,
      "tnrc_",
      "",
    ])
      expect(await tokens.find(presented(changed))).toBeUndefined();
    expect(statements).toBeLessThanOrEqual(1);
  });
});
