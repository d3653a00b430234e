import { Grants } from "@tenure/protocol";
import type { Db } from "../store/db.ts";
import { sql } from "../store/sql.ts";

export async function readChildTokenKey(db: Db): Promise<string> {
  const { rows } = await db.query<{ key: string }>(sql`select key from child_token_key`);
  return rows[0]!.key;
}

/** A deployment, as far as the tokens of its children need it. */
export interface CurrentTerm {
  tenant: string;
  name: string;
  grants: Grants;
}

/** The deployment, if this is its current term; `undefined` if the term is over. */
export async function findCurrentTerm(
  db: Db,
  { id, generation }: { id: string; generation: number },
): Promise<CurrentTerm | undefined> {
  const { rows } = await db.query<{ tenant: string; name: string; grants: unknown }>(sql`
    select tenant, tenure_deployment_name(deployment) as name, grants from deployment
     where id = ${id} and generation = ${generation} and enabled and (type = 'daemon' or address <> '')`);
  const [row] = rows;
  // What SQL wrote and the API would refuse grants nothing.
  return row && { ...row, grants: Grants.safeParse(row.grants).data ?? {} };
}
