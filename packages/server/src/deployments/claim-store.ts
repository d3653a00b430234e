import type { DeploymentTerm } from "@tenure/protocol";
import type { Db } from "../store/db.ts";
import { sql } from "../store/sql.ts";
import type { NodeTerm } from "./deployment-row.ts";

// Told by the statement itself: what is done is told, and nothing else is.
const CLAIMED = { event: "deployment.claimed" } as const;
const MOVED = { event: "deployment.moved" } as const;
const RELEASED = { event: "deployment.released" } as const;

/** What the caller's own row in `node_unit` said, under lock, when the statement decided. */
interface Standing {
  current: boolean;
  draining: boolean;
  claim_policy: string;
}

export type ClaimOutcome =
  | { outcome: "claimed"; claim: DeploymentTerm }
  | { outcome: "conflict" }
  | { outcome: "refused"; why: "replaced" | "policy_none" | "draining" };

/**
 * Takes the first candidate that is still free as it was seen, in the order given; or one that a draining owner
 * hands over to this node and has stopped.
 *
 * A row that a rival is taking at this moment is skipped, not waited for: losing it is no loss while others
 * are free. The caller's own row is locked in the same statement, so a node that left, was replaced, is being
 * drained or has the policy `none` takes nothing, however late its request arrives.
 */
export async function claimFirstFree(
  db: Db,
  { address, epoch }: NodeTerm,
  candidates: readonly DeploymentTerm[],
): Promise<ClaimOutcome> {
  const { rows } = await db.query<Standing & { id: string | null; generation: number | null }>(sql`
    with me as (
      select address, labels, draining, claim_policy,
             epoch = ${epoch} and online and presence_expires_at > tenure_now() as current
        from node_unit where address = ${address} for share),
    free as (
      select deployment.id, deployment.address as former
        from unnest(${candidates.map(({ id }) => id)}::uuid[],
                    ${candidates.map(({ generation }) => generation)}::bigint[])
             with ordinality as wanted (id, generation, place)
        join deployment on deployment.id = wanted.id and deployment.generation = wanted.generation
       where (deployment.address = ''
              or (deployment.moving_to = ${address} and deployment.move_state = 'stopped'))
         and deployment.enabled and deployment.type = 'deployment'
         and exists (select from me
                      where me.current and not me.draining and me.claim_policy <> 'none'
                        and deployment.selector <@ (me.labels || jsonb_build_object('address', me.address)))
       order by wanted.place
       limit 1
         for no key update of deployment skip locked),
    claimed as (
      update deployment
         set address = ${address}, generation = deployment.generation + 1, updated_at = tenure_now()
        from free
       where deployment.id = free.id
      returning deployment.id, deployment.generation, deployment.name, free.former),
    told as (
      insert into event (event, message, subject, details)
      select case former when '' then ${CLAIMED.event} else ${MOVED.event} end,
             'deployment ' || name || case former when '' then ' was claimed' else ' moved off a draining node' end,
             id::text,
             jsonb_build_object('address', ${address}::text, 'from', former, 'generation', generation)
        from claimed)
    select me.current, me.draining, me.claim_policy, claimed.id, claimed.generation
      from me left join claimed on true`);
  const [row] = rows;
  if (row?.id && row.generation !== null)
    return { outcome: "claimed", claim: { id: row.id, generation: row.generation } };
  return withoutClaim(row);
}

/**
 * Asks to take over a row of a draining owner. The owner keeps it until this node has installed it: only
 * `moving_to` is written here, never the address. The unique index lets one row of an owner move at a time.
 */
export async function reserveFirst(
  db: Db,
  { address, epoch }: NodeTerm,
  candidates: readonly DeploymentTerm[],
): Promise<ClaimOutcome> {
  const { rows } = await db
    .query<Standing & { id: string | null; generation: number | null }>(sql`
    with me as (
      select address, labels, draining, claim_policy,
             epoch = ${epoch} and online and presence_expires_at > tenure_now() as current
        from node_unit where address = ${address} for share),
    offered as (
      select deployment.id
        from unnest(${candidates.map(({ id }) => id)}::uuid[],
                    ${candidates.map(({ generation }) => generation)}::bigint[])
             with ordinality as wanted (id, generation, place)
        join deployment on deployment.id = wanted.id and deployment.generation = wanted.generation
        join node_unit as owner on owner.address = deployment.address and owner.draining
       where deployment.enabled and deployment.type = 'deployment' and deployment.address <> ${address}
         and deployment.moving_to = ''
         and not exists (select from deployment as other
                          where other.address = deployment.address and other.moving_to <> '')
         and exists (select from me
                      where me.current and not me.draining and me.claim_policy <> 'none'
                        and deployment.selector <@ (me.labels || jsonb_build_object('address', me.address)))
       order by wanted.place
       limit 1
         for no key update of deployment skip locked),
    reserved as (
      update deployment
         set moving_to = ${address}, move_state = 'installing', updated_at = tenure_now()
        from offered
       where deployment.id = offered.id
      returning deployment.id, deployment.generation)
    select me.current, me.draining, me.claim_policy, reserved.id, reserved.generation
      from me left join reserved on true`)
    .catch(refusedByIndex);
  const [row] = rows;
  if (row?.id && row.generation !== null)
    return { outcome: "claimed", claim: { id: row.id, generation: row.generation } };
  return rows.length === 0 ? { outcome: "conflict" } : withoutClaim(row);
}

/** Another node reserved another row of the same owner in the same instant: a lost race, no fault. */
function refusedByIndex(error: unknown): { rows: never[] } {
  if ((error as { code?: string }).code === "23505") return { rows: [] };
  throw error;
}

function withoutClaim(row: Standing | undefined): ClaimOutcome {
  if (!row?.current) return { outcome: "refused", why: "replaced" };
  if (row.claim_policy === "none") return { outcome: "refused", why: "policy_none" };
  if (row.draining) return { outcome: "refused", why: "draining" };
  return { outcome: "conflict" };
}

export type ReleaseOutcome =
  | { outcome: "released"; released: (DeploymentTerm & { address: string })[] }
  | { outcome: "refused"; why: "replaced" | "policy_none" };

/**
 * Frees the enabled deployments of those named nodes that are lost, by the state of their rows and not by what
 * the caller believes: a stale view takes nothing. The moment of loss is when a node left, or when its presence
 * ran out; each deployment waits `lost_after_ms` from there. An address nobody knows is lost for ever.
 *
 * It waits for one lock only, its caller's own row, and takes that one first: nobody can wait in a circle. A node
 * whose row is being written at this moment is coming back or leaving; the next pass sees which.
 */
export async function releaseLost(
  db: Db,
  { address, epoch }: NodeTerm,
  addresses: readonly string[],
): Promise<ReleaseOutcome> {
  const { rows } = await db.query<
    Standing & { id: string | null; generation: number; former: string }
  >(sql`
    with me as (
      select draining, claim_policy,
             epoch = ${epoch} and online and presence_expires_at > tenure_now() as current
        from node_unit where address = ${address} for share),
    asked as (
      select distinct named.address
        from me cross join unnest(${addresses}::text[]) as named (address)
       where me.current and me.claim_policy <> 'none' and named.address <> ''),
    known as (
      select node_unit.address,
             case when online then presence_expires_at else coalesce(left_at, '-infinity') end as lost_at
        from node_unit where node_unit.address in (select asked.address from asked)
         for share skip locked),
    lost as (
      select known.address, known.lost_at from known
      union all
      select asked.address, '-infinity'::timestamptz from asked
       where not exists (select from node_unit where node_unit.address = asked.address)),
    freed as (
      select deployment.id, deployment.address
        from deployment join lost on lost.address = deployment.address
       where deployment.enabled and deployment.type = 'deployment'
         and lost.lost_at + deployment.lost_after_ms * interval '1 ms' <= tenure_now()
         and not exists (select from membership_brake where active)
         for no key update of deployment skip locked),
    released as (
      update deployment
         set address = '', generation = deployment.generation + 1, updated_at = tenure_now()
        from freed
       where deployment.id = freed.id
      returning deployment.id, deployment.generation, deployment.name, freed.address as former),
    told as (
      insert into event (event, message, subject, details)
      select ${RELEASED.event}, 'deployment ' || name || ' was taken from a lost node', id::text,
             jsonb_build_object('address', former, 'generation', generation)
        from released)
    select me.current, me.draining, me.claim_policy, released.id, released.generation, released.former
      from me left join released on true`);
  const [first] = rows;
  if (!first?.current) return { outcome: "refused", why: "replaced" };
  if (first.claim_policy === "none") return { outcome: "refused", why: "policy_none" };
  const released = rows.flatMap(({ id, generation, former }) =>
    id === null ? [] : [{ id, generation, address: former }],
  );
  return { outcome: "released", released };
}
