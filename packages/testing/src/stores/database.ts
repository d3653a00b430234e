import { randomBytes } from "node:crypto";
import { Client } from "pg";

export interface TestDatabase {
  readonly name: string;
  readonly uri: string;
  /** Also while somebody is connected. */
  drop(): Promise<void>;
}

/**
 * A new database with a name of its own; a copy of `template` when one is named. Postgres copies no
 * database that has a connection, but waits five seconds by itself for the last one to go.
 */
export async function createDatabase(
  adminUri: string,
  options: { template?: string } = {},
): Promise<TestDatabase> {
  const { template = "template1" } = options;
  const name = `t_${randomBytes(6).toString("hex")}`;
  await withClient(adminUri, async (client) => {
    await client.query(`create database "${name}" template "${template}"`);
  });
  return {
    name,
    uri: uriOf(adminUri, name),
    drop: () =>
      withClient(adminUri, async (client) => {
        await client.query(`drop database if exists "${name}" with (force)`);
      }),
  };
}

/**
 * Makes the template once per server, however many test files ask at the same moment, and returns
 * its name. It gets its name only when `prepare` has ended: a half-made one is never copied.
 */
export async function ensureTemplate(
  adminUri: string,
  template: string,
  prepare: (uri: string) => Promise<void>,
): Promise<string> {
  await withClient(adminUri, async (client) => {
    await client.query("select pg_advisory_lock(hashtext($1))", [template]);
    const made = await client.query("select from pg_database where datname = $1", [template]);
    if (made.rowCount === 1) return;
    const draft = await createDatabase(adminUri);
    await prepare(draft.uri);
    await client.query(`alter database "${draft.name}" rename to "${template}"`);
  });
  return template;
}

async function withClient(uri: string, work: (client: Client) => Promise<void>): Promise<void> {
  const client = new Client({ connectionString: uri, connectionTimeoutMillis: 10_000 });
  client.on("error", () => {});
  await client.connect();
  try {
    await work(client);
  } finally {
    await client.end();
  }
}

function uriOf(adminUri: string, database: string): string {
  const uri = new URL(adminUri);
  uri.pathname = `/${database}`;
  return uri.href;
}
