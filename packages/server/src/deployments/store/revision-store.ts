import type { DeploymentRevision, FieldIssue } from "@tenure/protocol";
import type { Db } from "../../store/db.ts";
import { sql } from "../../store/sql.ts";
import { readSpecification, type Specification } from "./row-reader.ts";

/**
 * Former specifications, newest first. One that cannot be read is left out; `last` is the oldest revision that was
 * looked at when there are more.
 */
export async function listRevisions(
  db: Db,
  { id, before, limit }: { id: string; before?: number | undefined; limit: number },
): Promise<{ items: DeploymentRevision[]; last: number | undefined }> {
  const { rows } = await db.query<{ revision: number; spec: unknown; replaced_at: Date }>(sql`
    select revision, spec, replaced_at from deployment_revision
     where deployment_id = ${id} and (${before ?? null}::int is null or revision < ${before ?? null})
       and revision >= 0 and isfinite(replaced_at)
     order by revision desc
     limit ${limit}`);
  const items = rows.flatMap(({ revision, spec: raw, replaced_at }) => {
    const { spec } = readSpecification(raw);
    return spec ? [{ revision, ...spec, replaced_at: replaced_at.toISOString() }] : [];
  });
  return { items, last: rows.length === limit ? rows.at(-1)?.revision : undefined };
}

/** The newest former specification that can be run, of each of these deployments that has one. */
export async function lastGoodSpecifications(
  db: Db,
  ids: readonly string[],
): Promise<Map<string, Specification>> {
  const found = new Map<string, Specification>();
  if (ids.length === 0) return found;
  const { rows } = await db.query<{ id: string; spec: unknown }>(sql`
    select deployment_id as id, spec from deployment_revision
     where deployment_id = any(${ids}::uuid[])
     order by revision desc`);
  for (const { id, spec: raw } of rows) {
    const { spec } = readSpecification(raw);
    if (spec && !found.has(id)) found.set(id, spec);
  }
  return found;
}

export type FoundRevision =
  | { revision: number; spec: Specification }
  | { revision?: never; invalid: FieldIssue[] }
  | undefined;

/** What a rollback goes back to: this revision, or the newest that can be run. */
export async function findRevision(
  db: Db,
  id: string,
  wanted: number | undefined,
): Promise<FoundRevision> {
  const { rows } = await db.query<{ revision: number; spec: unknown }>(sql`
    select revision, spec from deployment_revision
     where deployment_id = ${id} and (${wanted ?? null}::int is null or revision = ${wanted ?? null})
     order by revision desc`);
  const read = rows.map(({ revision, spec }) => ({ revision, ...readSpecification(spec) }));
  for (const { revision, spec } of read) if (spec) return { revision, spec };
  const [bad] = read;
  return bad && "invalid" in bad ? { invalid: bad.invalid } : undefined;
}
