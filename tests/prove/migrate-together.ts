import assert from "node:assert";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import {
  type RunningServer,
  startServer,
  storeSettings,
} from "@tenure/testing/fleet/running-server";
import { repositoryRoot } from "@tenure/testing/repository";
import { createDatabase } from "@tenure/testing/stores/database";
import { startPostgres } from "@tenure/testing/stores/postgres";
import { Client } from "pg";
import type { Proof } from "./proof.ts";

export const migrateTogether: Proof = {
  name: "migrate-together",
  summary: "servers started at once on one empty Postgres: all come up, migrations ran once",
  async run({ size, print }) {
    const postgres = await startPostgres();
    try {
      for (const count of size === "full" ? [2, 5, 10] : [2, 5]) {
        print(await startTogether(count, postgres.uri()));
      }
    } finally {
      await postgres.discard();
    }
  },
};

async function startTogether(count: number, adminUri: string): Promise<string> {
  const { uri: postgresUri } = await createDatabase(adminUri);
  const env = storeSettings({ postgresUri });
  const startedMs = performance.now();
  const servers = await Promise.all(Array.from({ length: count }, () => startServer({ env })));
  const seconds = ((performance.now() - startedMs) / 1_000).toFixed(1);

  const migrators = servers.filter((server) => server.stderr().includes('"schema.migrated"'));
  assert.equal(migrators.length, 1, `${migrators.length} servers say that they migrated`);
  assert.deepEqual(await appliedMigrations(postgresUri), shippedMigrations());
  for (const server of servers) assert.equal(await instancesSeenBy(server), count);
  const exits = await Promise.all(servers.map((server) => server.stop()));
  for (const exit of exits) assert.deepEqual(exit, { code: 0, signal: null });
  return `${count} servers: all ready after ${seconds} s, 1 migrated, each lists ${count} instances`;
}

async function appliedMigrations(uri: string): Promise<string[]> {
  const client = new Client({ connectionString: uri });
  await client.connect();
  try {
    const { rows } = await client.query<{ file: string }>(
      "select lpad(id::text, 4, '0') || '_' || name || '.sql' as file from tenure_migration order by id",
    );
    return rows.map(({ file }) => file);
  } finally {
    await client.end();
  }
}

function shippedMigrations(): string[] {
  return readdirSync(join(repositoryRoot, "packages/server/dist/store/migrations")).sort();
}

async function instancesSeenBy(server: RunningServer): Promise<number> {
  const { body } = await server.get("/api/v1/cluster");
  return (body as { instances: unknown[] }).instances.length;
}
