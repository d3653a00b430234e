import type { DeploymentRevision } from "@tenure/protocol";
import type { Db } from "../store/db.ts";
import { sql } from "../store/sql.ts";

/** Former specifications, newest first. */
export async function listRevisions(
  db: Db,
  { id, before, limit }: { id: string; before?: number | undefined; limit: number },
): Promise<DeploymentRevision[]> {
  const { rows } = await db.query<{ revision: number; spec: Spec; replaced_at: Date }>(sql`
    select revision, spec, replaced_at from deployment_revision
     where deployment_id = ${id} and (${before ?? null}::int is null or revision < ${before ?? null})
     order by revision desc
     limit ${limit}`);
  return rows.map(({ revision, spec, replaced_at }) => ({
    revision,
    package_name: spec.package_name,
    package_version: spec.package_version,
    command: spec.command,
    args: spec.args,
    env: spec.env,
    selector: spec.selector,
    lost_after_ms: spec.lost_after_ms,
    // Specifications written before there were types are deployments.
    type: spec.type ?? "deployment",
    replaced_at: replaced_at.toISOString(),
  }));
}

type Spec = Omit<DeploymentRevision, "revision" | "replaced_at" | "type"> & { type?: string };
