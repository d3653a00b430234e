import { createHash } from "node:crypto";
import { scratchDirectory } from "@tenure/testing/scratch";
import { createDatabase, ensureTemplate } from "@tenure/testing/stores/database";
import { stores } from "@tenure/testing/stores/stores";
import type { Db, PostgresStore } from "../src/store/db.ts";
import { openPglite } from "../src/store/embedded/pglite.ts";
import { migrate, readMigrations } from "../src/store/migrate.ts";
import { openPostgres, type PostgresOptions } from "../src/store/postgres.ts";
import { sql } from "../src/store/sql.ts";

/** Every Postgres we promise to run on. */
export const DATABASES = ["embedded", "postgres"] as const;
export type DatabaseKind = (typeof DATABASES)[number];

export interface TestDb {
  db: PostgresStore;
  /** Moves `tenure_now()` for everybody on this database. */
  advance(ms: number): Promise<void>;
  close(): Promise<void>;
}

/** A migrated database of its own, with a clock that tests can move. */
export async function openTestDb(kind: DatabaseKind = "postgres"): Promise<TestDb> {
  return kind === "embedded" ? openEmbedded() : openServer();
}

async function openEmbedded(): Promise<TestDb> {
  const db = await openPglite({ dataDir: scratchDirectory("embedded") });
  await migrate(db);
  await db.script(MOVABLE_CLOCK);
  return { db, advance: (ms) => advance(db, ms), close: () => db.close() };
}

/** On a server, a copy of a template that is migrated once per run. `uri` lets others connect too. */
export async function openServer(
  options: Omit<PostgresOptions, "uri"> = {},
): Promise<TestDb & { uri: string }> {
  const { postgresAdminUri } = stores();
  const template = await ensureTemplate(postgresAdminUri, templateName(), async (uri) => {
    const draft = openPostgres({ uri, poolMax: 1 });
    await migrate(draft);
    await draft.script(MOVABLE_CLOCK);
    await draft.close();
  });
  const database = await createDatabase(postgresAdminUri, { template });
  const db = openPostgres({ uri: database.uri, ...options });
  return {
    db,
    uri: database.uri,
    advance: (ms) => advance(db, ms),
    async close() {
      await db.close();
      await database.drop();
    },
  };
}

// It nearly stands still between the moves: what a slow machine takes is not what a test means. It does not quite, so
// that what comes later is later.
const MOVABLE_CLOCK = `
  create table tenure_test_clock (offset_ms bigint not null, began timestamptz not null);
  insert into tenure_test_clock values (0, clock_timestamp());
  create or replace function tenure_now() returns timestamptz language sql volatile
    return (select began + (clock_timestamp() - began) / 100 + offset_ms * interval '1 ms' from tenure_test_clock);`;

async function advance(db: Db, ms: number): Promise<void> {
  await db.query(sql`update tenure_test_clock set offset_ms = offset_ms + ${ms}`);
}

/** Named after what is in it: a changed migration is another template. */
function templateName(): string {
  const hash = createHash("sha256").update(MOVABLE_CLOCK);
  for (const migration of readMigrations()) hash.update(migration.sha256);
  return `tenure_template_${hash.digest("hex").slice(0, 12)}`;
}
