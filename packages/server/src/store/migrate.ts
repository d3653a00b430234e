import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import type { Db, PostgresStore } from "./db.ts";
import { sql } from "./sql.ts";

const DIRECTORY = new URL("./migrations/", import.meta.url);
// Any constant would do; every version of the server must use the same one.
const LOCK_KEY = 7_070_001;

export interface Migration {
  id: number;
  name: string;
  text: string;
  sha256: string;
}

export function readMigrations(directory: URL = DIRECTORY): Migration[] {
  return readdirSync(directory)
    .filter((file) => /^\d{4}_[a-z0-9_]+\.sql$/.test(file))
    .sort()
    .map((file) => {
      const text = readFileSync(new URL(file, directory), "utf8");
      const sha256 = createHash("sha256").update(text).digest("hex");
      return { id: Number(file.slice(0, 4)), name: file.slice(5, -4), text, sha256 };
    });
}

/**
 * Brings the schema to this version; answers the names of what it ran.
 *
 * All of it is one transaction behind an advisory lock that waits: of several instances started at once
 * one migrates and the others find it done, and a migration that fails leaves nothing behind. Migrations
 * only add, so an older server goes on working beside a newer schema, and one it does not know is no error.
 */
export async function migrate(db: PostgresStore, migrations = readMigrations()): Promise<string[]> {
  return db.transaction(async (tx) => {
    await tx.query(sql`select pg_advisory_xact_lock(${LOCK_KEY})`);
    await tx.query(sql`
      create table if not exists tenure_migration (
        id         int         primary key,
        name       text        not null,
        sha256     text        not null,
        applied_at timestamptz not null default clock_timestamp())`);
    const { rows } = await tx.query<{ id: number; sha256: string }>(
      sql`select id, sha256 from tenure_migration order by id`,
    );
    const applied = new Map(rows.map((row) => [row.id, row.sha256]));
    const missing = migrations.filter((migration) => !applied.has(migration.id));
    refuseChanged(migrations, applied);
    for (const migration of missing) await apply(tx, migration);
    return missing.map((migration) => migration.name);
  });
}

function refuseChanged(migrations: Migration[], applied: Map<number, string>): void {
  const changed = migrations.find(
    ({ id, sha256 }) => applied.has(id) && applied.get(id) !== sha256,
  );
  if (!changed) return;
  throw new Error(
    `migration ${changed.id} (${changed.name}) was changed after this database applied it; migrations only add`,
  );
}

async function apply(tx: Db, { id, name, text, sha256 }: Migration): Promise<void> {
  await tx.script(text);
  await tx.query(
    sql`insert into tenure_migration (id, name, sha256) values (${id}, ${name}, ${sha256})`,
  );
}
