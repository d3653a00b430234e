import type { Db } from "../../store/db.ts";
import { sql } from "../../store/sql.ts";

interface MoveStep {
  id: string;
  address: string;
  generation: number;
}

/** The next node has it installed: the owner may stop. One that refuses it has no child any more. */
export async function markMoveReady(
  db: Db,
  { id, address, generation }: MoveStep,
): Promise<boolean> {
  const { rowCount } = await db.query(sql`
    update deployment
       set move_state = case when exists (select from deployment_status as report
                                           where report.deployment_id = deployment.id and report.address = deployment.address
                                             and report.generation = deployment.generation and report.state = 'refused')
                             then 'stopped' else 'ready' end
     where id = ${id} and moving_to = ${address} and generation = ${generation} and move_state = 'installing'`);
  return rowCount === 1;
}

/** The next node cannot run it after all; it stays where it is. */
export async function giveMoveBack(
  db: Db,
  { id, address, generation }: MoveStep,
): Promise<boolean> {
  const { rowCount } = await db.query(sql`
    update deployment set moving_to = '' where id = ${id} and moving_to = ${address} and generation = ${generation}`);
  return rowCount === 1;
}

/** The owner has stopped its child: the next node may claim it. */
export async function markStopped(db: Db, { id, address, generation }: MoveStep): Promise<boolean> {
  const { rowCount } = await db.query(sql`
    update deployment set move_state = 'stopped'
     where id = ${id} and address = ${address} and generation = ${generation} and move_state = 'ready'`);
  return rowCount === 1;
}

const INSTALL_LIMIT_MS = 10 * 60_000;

/**
 * Drops handovers that lead nowhere: the next node is gone, silent or may not take the row any more, the row is
 * disabled, or there is no reason left, because the drain has ended or the pin was taken off. A node that has not installed
 * the row in 10 minutes has failed, so that another one can take it over.
 */
export async function dropDeadMoves(db: Db): Promise<number> {
  const { rows } = await db.query(sql`
    with dropped as (
      update deployment as moved
         set moving_to = ''
        from deployment as former
       where former.id = moved.id and moved.moving_to <> ''
         and (former.moving_to, former.move_state) = (moved.moving_to, moved.move_state)
         and (not moved.enabled or moved.type <> 'deployment'
              or not exists (select from node_unit as next
                              where next.address = moved.moving_to and next.online
                                and next.presence_expires_at > tenure_now() and not next.draining
                                and (next.claim_policy <> 'none' or moved.selector ->> 'address' = moved.moving_to)
                                and tenure_serves(tenure_tenants_of(next), moved.tenant)
                                and moved.selector <@ (next.labels || jsonb_build_object('address', next.address)))
              or not (coalesce(moved.selector ->> 'address' = moved.moving_to, false)
                      or exists (select from node_unit where node_unit.address = moved.address and draining))
              or (moved.move_state = 'installing' and moved.updated_at < tenure_now() - ${INSTALL_LIMIT_MS} * interval '1 ms'))
      returning moved.id, moved.generation, former.moving_to as next,
                former.move_state = 'installing' and moved.updated_at < tenure_now() - ${INSTALL_LIMIT_MS} * interval '1 ms' as idle),
    failed as (
      insert into deployment_status (deployment_id, address, state, generation, last_error)
      select id, next, 'failed', generation, 'it was not installed within 10 minutes' from dropped where idle
      on conflict (deployment_id, address) do update
         set state = excluded.state, generation = excluded.generation, last_error = excluded.last_error,
             updated_at = excluded.updated_at)
    select id from dropped`);
  return rows.length;
}

/** A node that failed to install a row gets it again after this time at the earliest. */
export const FAILED_PAUSE_MS = 60_000;

/**
 * Begins the handover of rows that are pinned to another node than their owner, one of an owner and tenant at a time. The
 * owner goes on until the next node has installed it. A node that is not there gets nothing yet, and a lost owner's row
 * is released as every other.
 */
export async function beginPinnedMoves(db: Db): Promise<number> {
  const { rowCount } = await db
    .query(sql`
    update deployment
       set moving_to = pending.next, move_state = 'installing', updated_at = tenure_now()
      from (select distinct on (pinned.address, pinned.tenant) pinned.id, pinned.address, next.address as next
              from deployment as pinned
              join node_unit as next on next.address = pinned.selector ->> 'address'
              join node_unit as owner on owner.address = pinned.address
             where pinned.selector ? 'address' and pinned.enabled and pinned.type = 'deployment'
               and pinned.moving_to = '' and next.address <> pinned.address
               and owner.online and owner.presence_expires_at > tenure_now()
               and next.online and next.presence_expires_at > tenure_now() and not next.draining
               and tenure_serves(tenure_tenants_of(next), pinned.tenant)
               and (tenure_takes_secrets(next) or pinned.secret_versions = '{}')
               and pinned.selector <@ (next.labels || jsonb_build_object('address', next.address))
               and not exists (select from deployment as other
                                where other.address = pinned.address and other.tenant = pinned.tenant
                                  and other.moving_to <> '')
               and not exists (select from deployment_status as report
                                where report.deployment_id = pinned.id and report.address = next.address
                                  and ((report.refused_revision = pinned.revision
                                        and report.refused_traits = tenure_node_traits(next))
                                       or (report.state = 'failed' and report.generation = pinned.generation
                                           and report.updated_at > tenure_now() - ${FAILED_PAUSE_MS} * interval '1 ms')))
             order by pinned.address, pinned.tenant, pinned.updated_at, pinned.id) as pending
     where deployment.id = pending.id and deployment.address = pending.address and deployment.moving_to = ''`)
    .catch(refusedByIndex);
  return rowCount;
}

/** Another row of the same owner and tenant began to move in the same instant. The next look begins this one. */
function refusedByIndex(error: unknown): { rowCount: number } {
  if ((error as { code?: string }).code === "23505") return { rowCount: 0 };
  throw error;
}

const MOVED = { event: "deployment.moved" } as const;

/**
 * Ends handovers to nodes with the policy `none`: such a node claims nothing, and an operator pinned the row to it.
 * Other nodes claim for themselves.
 */
export async function finishPinnedMoves(db: Db): Promise<number> {
  const { rowCount } = await db.query(sql`
    with moved as (
      update deployment
         set address = next.address, generation = deployment.generation + 1, updated_at = tenure_now()
        from node_unit as next, deployment as former
       where former.id = deployment.id and next.address = deployment.moving_to and next.claim_policy = 'none'
         and next.online and next.presence_expires_at > tenure_now()
         and tenure_serves(tenure_tenants_of(next), deployment.tenant)
         and deployment.move_state = 'stopped' and deployment.selector ->> 'address' = next.address
         and deployment.enabled and deployment.type = 'deployment'
      returning deployment.id, tenure_deployment_name(deployment) as name, deployment.address, former.address as former, deployment.generation)
    insert into event (event, message, subject, details)
    select ${MOVED.event}, 'deployment ' || name || ' moved to another node', id::text,
           jsonb_build_object('address', address, 'from', former, 'generation', generation)
      from moved`);
  return rowCount;
}
