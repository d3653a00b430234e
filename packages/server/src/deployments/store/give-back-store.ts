import { type DeploymentTerm, LEAVING_TAG } from "@tenure/protocol";
import type { Db } from "../../store/db.ts";
import { json, sql } from "../../store/sql.ts";
import type { NodeTerm } from "../deployment-row.ts";

const LEAVING = json({ [LEAVING_TAG]: true });
const RELEASED = { event: "deployment.released" } as const;

export type GiveBackOutcome =
  | { outcome: "released"; released: DeploymentTerm[] }
  | { outcome: "refused"; why: "replaced" | "policy_none" };

/**
 * Frees those of the caller's own rows whose children have ended because the caller stops. Rows with a `lost_after_ms`
 * keep their owner: it may be back within that time. Marks the caller as leaving in the same statement, or the other
 * nodes would leave the rows to it, because it has the fewest now.
 *
 * A row locked by another statement is skipped. It is released like the rest when the caller has left.
 */
export async function giveBack(
  db: Db,
  { address, epoch }: NodeTerm,
  stopped: readonly DeploymentTerm[],
): Promise<GiveBackOutcome> {
  const { rows } = await db.query<{
    current: boolean;
    claim_policy: string;
    id: string | null;
    generation: number;
  }>(sql`
    with me as (
      select address, tags, claim_policy,
             epoch = ${epoch} and online and presence_expires_at > tenure_now() as current
        from node_unit where address = ${address} for no key update),
    leaving as (
      update node_unit set tags = node_unit.tags || ${LEAVING}::jsonb
        from me
       where node_unit.address = me.address and me.current and me.claim_policy <> 'none'
         and not me.tags @> ${LEAVING}::jsonb),
    ended as (
      select deployment.id
        from me
        cross join unnest(${stopped.map(({ id }) => id)}::uuid[],
                          ${stopped.map(({ generation }) => generation)}::bigint[]) as named (id, generation)
        join deployment on deployment.id = named.id and deployment.generation = named.generation
                       and deployment.address = me.address
       where me.current and me.claim_policy <> 'none'
         and deployment.enabled and deployment.type = 'deployment' and deployment.lost_after_ms = 0
         for no key update of deployment skip locked),
    released as (
      update deployment
         set address = '', generation = deployment.generation + 1, updated_at = tenure_now()
        from ended
       where deployment.id = ended.id
      returning deployment.id, deployment.generation, tenure_deployment_name(deployment) as name),
    logged as (
      insert into event (event, message, subject, details)
      select ${RELEASED.event}, 'deployment ' || name || ' was given back by a stopping node', id::text,
             jsonb_build_object('address', ${address}::text, 'generation', generation)
        from released)
    select me.current, me.claim_policy, released.id, released.generation
      from me left join released on true`);
  const [first] = rows;
  if (!first?.current) return { outcome: "refused", why: "replaced" };
  if (first.claim_policy === "none") return { outcome: "refused", why: "policy_none" };
  const released = rows.flatMap(({ id, generation }) => (id === null ? [] : [{ id, generation }]));
  return { outcome: "released", released };
}
