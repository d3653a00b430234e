import { Client } from "pg";
import { describe, expect, test } from "vitest";
import { createDatabase, ensureTemplate } from "./database.ts";
import { stores } from "./stores.ts";

describe("a database for one test file", () => {
  const { postgresAdminUri } = stores();

  test("a database is new, and can be dropped while a client is connected", async () => {
    const database = await createDatabase(postgresAdminUri);
    const client = await connect(database.uri);
    const gone = new Promise((resolve) => client.once("end", resolve));
    await client.query("create table mine ()");
    await database.drop();
    await gone;
    await expect(connect(database.uri)).rejects.toThrow("does not exist");
  });

  test("a template is made once for concurrent callers", async () => {
    const prepared: string[] = [];
    const prepare = async (uri: string) => {
      prepared.push(uri);
      const client = await connect(uri);
      await client.query("create table made as select 1 as once");
      await client.end();
    };
    const clones = await Promise.all(
      Array.from({ length: 4 }, async () => {
        const template = await ensureTemplate(postgresAdminUri, "tenure_support_test", prepare);
        return createDatabase(postgresAdminUri, { template });
      }),
    );
    expect(prepared).toHaveLength(1);
    expect(new Set(clones.map((clone) => clone.name)).size).toBe(4);
    for (const clone of clones) {
      const client = await connect(clone.uri);
      expect((await client.query("select * from made")).rows).toEqual([{ once: 1 }]);
      await client.end();
      await clone.drop();
    }
  });

  test("a copy waits until the last client of the template has gone", async () => {
    const template = await createDatabase(postgresAdminUri);
    const client = await connect(template.uri);
    const events: string[] = [];
    const cloning = createDatabase(postgresAdminUri, { template: template.name }).then((clone) => {
      events.push("cloned");
      return clone;
    });
    await client.query("select pg_sleep(0.2)");
    events.push("left");
    await client.end();
    const clone = await cloning;
    expect(events).toEqual(["left", "cloned"]);
    await clone.drop();
    await template.drop();
  });

  test("a copy of a missing template is refused with the reason", async () => {
    const cloning = createDatabase(postgresAdminUri, { template: "never_made" });
    await expect(cloning).rejects.toThrow('template database "never_made" does not exist');
  });
});

async function connect(uri: string): Promise<Client> {
  const client = new Client({ connectionString: uri });
  client.on("error", () => {});
  await client.connect();
  return client;
}
