import type { DeploymentTerm, NodeTraits } from "@tenure/protocol";
import type { Moment } from "../../membership/store/confirmation-store.ts";
import type { Db } from "../../store/db.ts";
import { sql } from "../../store/sql.ts";
import type { NodeTerm } from "../deployment-row.ts";
import { FAILED_PAUSE_MS } from "./move-store.ts";

// The statements store their events themselves, so that an event and its change are committed together.
const CLAIMED = { event: "deployment.claimed" } as const;
const MOVED = { event: "deployment.moved" } as const;
const RELEASED = { event: "deployment.released" } as const;

/** The caller's own row in `node_unit`, locked by the statement that decides. */
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
 * A row that another node is claiming at this moment is skipped (`skip locked`). The caller's own row is locked in the same
 * statement, so a node that left, was replaced, is draining or has the policy `none` claims nothing, however late its
 * request arrives.
 */
export async function claimFirstFree(
  db: Db,
  { address, epoch }: NodeTerm,
  candidates: readonly DeploymentTerm[],
): Promise<ClaimOutcome> {
  const { rows } = await db.query<Standing & { id: string | null; generation: number | null }>(sql`
    with me as (
      select address, labels, draining, claim_policy, tenure_node_traits(node_unit) as traits,
             tenure_tenants_of(node_unit) as tenants, tenure_takes_secrets(node_unit) as takes_secrets,
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
                        and tenure_serves(me.tenants, deployment.tenant)
                        and (me.takes_secrets or deployment.secret_versions = '{}')
                        and deployment.selector <@ (me.labels || jsonb_build_object('address', me.address)))
         and not exists (select from deployment_status as refused
                          where refused.deployment_id = deployment.id and refused.address = ${address}
                            and refused.refused_revision = deployment.revision
                            and refused.refused_traits = (select me.traits from me))
       order by wanted.place
       limit 1
         for no key update of deployment skip locked),
    claimed as (
      update deployment
         set address = ${address}, generation = deployment.generation + 1, updated_at = tenure_now()
        from free
       where deployment.id = free.id
      returning deployment.id, deployment.generation, tenure_deployment_name(deployment) as name, free.former),
    logged as (
      insert into event (event, message, subject, details)
      select case former when '' then ${CLAIMED.event} else ${MOVED.event} end,
             'deployment ' || name || case former when '' then ' was claimed' else ' moved to another node' end,
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
 * `moving_to` is written here, never the address. The unique index lets one row of an owner and tenant move at a time. A
 * node that failed to install the row does not get it again for a minute.
 */
export async function reserveFirst(
  db: Db,
  { address, epoch }: NodeTerm,
  candidates: readonly DeploymentTerm[],
): Promise<ClaimOutcome> {
  const { rows } = await db
    .query<Standing & { id: string | null; generation: number | null }>(sql`
    with me as (
      select address, labels, draining, claim_policy, tenure_node_traits(node_unit) as traits,
             tenure_tenants_of(node_unit) as tenants, tenure_takes_secrets(node_unit) as takes_secrets,
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
                          where other.address = deployment.address and other.tenant = deployment.tenant
                            and other.moving_to <> '')
         and exists (select from me
                      where me.current and not me.draining and me.claim_policy <> 'none'
                        and tenure_serves(me.tenants, deployment.tenant)
                        and (me.takes_secrets or deployment.secret_versions = '{}')
                        and deployment.selector <@ (me.labels || jsonb_build_object('address', me.address)))
         and not exists (select from deployment_status as refused
                          where refused.deployment_id = deployment.id and refused.address = ${address}
                            and refused.refused_revision = deployment.revision
                            and refused.refused_traits = (select me.traits from me))
         and not exists (select from deployment_status as failed
                          where failed.deployment_id = deployment.id and failed.address = ${address}
                            and failed.state = 'failed' and failed.generation = deployment.generation
                            and failed.updated_at > tenure_now() - ${FAILED_PAUSE_MS} * interval '1 ms')
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
  | {
      outcome: "released";
      released: (DeploymentTerm & { address: string })[];
      /** The silent loss after which not every present node-unit has answered yet: its rows wait. */
      waitsSince: Moment | null;
    }
  | { outcome: "refused"; why: "replaced" | "policy_none" };

export interface ReleaseRules {
  /** Deployments that are left as they are, because their rows cannot be read. */
  except?: readonly string[];
  /** Within how long losses count together for the mass-loss brake; undefined where it is switched off. */
  brakeTtlMs?: number | undefined;
}

/**
 * Frees the enabled deployments of those named nodes that are lost, by the state of their rows and not by what
 * the caller believes: a stale view takes nothing. The moment of loss is when a node left, or when its presence
 * ran out; each deployment waits `lost_after_ms` from there. An address without a row is lost. A node that came back with
 * a token of other tenants has lost the deployments that it does not serve any more.
 *
 * A close is certain. After a silent loss other nodes may be gone without being noticed yet, so its rows wait until every
 * present node-unit answered after it, at most 5 s. The mass-loss brake is decided here too, among the node-units that serve
 * the tenant of each deployment: a loss that commits a moment before this statement is seen by it, and a node-unit that has
 * not answered after the 5 s counts as lost.
 *
 * It waits for one lock only, its caller's own row, and takes that one first, so it cannot deadlock. A node whose row is
 * being written at this moment is joining or leaving; the next pass sees which.
 */
export async function releaseLost(
  db: Db,
  { address, epoch }: NodeTerm,
  addresses: readonly string[],
  { except = [], brakeTtlMs }: ReleaseRules = {},
): Promise<ReleaseOutcome> {
  const { rows } = await db.query<
    Standing & { id: string | null; generation: number; former: string; waits_since: Moment | null }
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
      select node_unit.address, tenure_lost_at(node_unit) as lost_at, online or left_silently as silent,
             -- Unknown of a node that joined through an instance of 0.1.0.
             case when tenants_epoch = epoch then tenants end as tenants
        from node_unit where node_unit.address in (select asked.address from asked)
         for share skip locked),
    renewed as materialized (
      select min(coalesce(renewed_at, '-infinity')) as all_since
        from node_unit_now where online and node_unit_now.lost_at > tenure_now()),
    lost as (
      select known.address, known.lost_at, known.tenants,
             known.silent and known.lost_at between tenure_now() - interval '5 s' and tenure_now()
               and coalesce(known.lost_at >= renewed.all_since, false) as waits
        from known, renewed
      union all
      select asked.address, '-infinity'::timestamptz, null, false from asked
       where not exists (select from node_unit where node_unit.address = asked.address)),
    loss as materialized (
      select owning.tenant, loss.lost, loss.present
        from (select distinct deployment.tenant
                from deployment join asked on asked.address = deployment.address) as owning,
             (select greatest(released_at, tenure_now() - ${brakeTtlMs ?? null} * interval '1 ms') as since
                from membership_brake) as counted,
             tenure_losses(counted.since,
                           (select max(known.lost_at) from known
                             where known.silent and known.lost_at between counted.since and tenure_now()
                               and tenure_serves(coalesce(known.tenants, '{default}'), owning.tenant)),
                           owning.tenant) as loss
       where ${brakeTtlMs ?? null}::bigint is not null),
    freed as (
      select deployment.id, deployment.address
        from deployment join lost on lost.address = deployment.address
       where deployment.enabled and deployment.type = 'deployment'
         and deployment.id <> all(${except}::uuid[]) and deployment.generation < 9007199254740991
         and (not tenure_serves(lost.tenants, deployment.tenant)
              or (lost.lost_at + greatest(
                    deployment.lost_after_ms,
                    -- The value that the owner last reported: it may not know of a lower one yet.
                    (select report.lost_after_ms from deployment_status as report
                      where report.deployment_id = deployment.id and report.address = deployment.address
                        and report.generation = deployment.generation)) * interval '1 ms' <= tenure_now()
                  and not lost.waits
                  and not exists (select from tenant_brake as brake where brake.tenant = deployment.tenant)
                  and not exists (select from loss
                                   where loss.tenant = deployment.tenant
                                     and tenure_is_mass_loss(loss.lost, loss.present))))
         for no key update of deployment skip locked),
    released as (
      update deployment
         set address = '', generation = deployment.generation + 1, updated_at = tenure_now()
        from freed
       where deployment.id = freed.id
      returning deployment.id, deployment.generation, tenure_deployment_name(deployment) as name,
                freed.address as former),
    logged as (
      insert into event (event, message, subject, details)
      select ${RELEASED.event}, 'deployment ' || name || ' was taken from a lost node', id::text,
             jsonb_build_object('address', former, 'generation', generation)
        from released)
    select me.current, me.draining, me.claim_policy, released.id, released.generation, released.former,
           (select max(lost_at) from lost where waits)::text as waits_since
      from me left join released on true`);
  const [first] = rows;
  if (!first?.current) return { outcome: "refused", why: "replaced" };
  if (first.claim_policy === "none") return { outcome: "refused", why: "policy_none" };
  const released = rows.flatMap(({ id, generation, former }) =>
    id === null ? [] : [{ id, generation, address: former }],
  );
  return { outcome: "released", released, waitsSince: first.waits_since };
}

/** A row that its present owner reported as refused, with the traits of that owner. */
export interface RefusedRow extends DeploymentTerm {
  revision: number;
  owner: NodeTraits;
}

/** The rows of these nodes that their present owner refuses in this term: its child has ended. */
export async function listRefused(db: Db, addresses: readonly string[]): Promise<RefusedRow[]> {
  const { rows } = await db.query<RefusedRow>(sql`
    select deployment.id, deployment.generation, deployment.revision,
           jsonb_build_object('address', owner.address, 'labels', owner.labels,
                              'trusted_package_regexp', owner.trusted_package_regexp,
                              'custom_command', owner.custom_command, 'tags', owner.tags,
                              'tenants', tenure_tenants_of(owner)) as owner
      from deployment
      join node_unit as owner on owner.address = deployment.address and owner.online
      join deployment_status as report on report.deployment_id = deployment.id and report.address = deployment.address
                                    and report.generation = deployment.generation and report.state = 'refused'
     where deployment.address = any(${addresses}) and deployment.enabled and deployment.type = 'deployment'
       and deployment.moving_to = '' and deployment.generation < 9007199254740991`);
  return rows;
}

/**
 * Frees those rows, as they were judged: by their revision, which the caller fits and the owner does not, and only
 * while the owner reports `refused` in this term. The owner itself frees nothing by refusing.
 */
export async function releaseRefused(
  db: Db,
  { address, epoch }: NodeTerm,
  judged: readonly RefusedRow[],
): Promise<DeploymentTerm[]> {
  if (judged.length === 0) return [];
  const { rows } = await db.query<DeploymentTerm>(sql`
    with me as (
      select address, labels, tenure_tenants_of(node_unit) as tenants,
             tenure_takes_secrets(node_unit) as takes_secrets
        from node_unit
       where address = ${address} and epoch = ${epoch} and online and presence_expires_at > tenure_now()
         and not draining and claim_policy <> 'none'
         for share),
    freed as (
      select deployment.id, deployment.address
        from unnest(${judged.map(({ id }) => id)}::uuid[], ${judged.map(({ generation }) => generation)}::bigint[],
                    ${judged.map(({ revision }) => revision)}::int[]) as named (id, generation, revision)
        join deployment on deployment.id = named.id and deployment.generation = named.generation
                       and deployment.revision = named.revision
        join me on deployment.selector <@ (me.labels || jsonb_build_object('address', me.address))
               and tenure_serves(me.tenants, deployment.tenant)
               and (me.takes_secrets or deployment.secret_versions = '{}')
       where deployment.enabled and deployment.type = 'deployment' and deployment.moving_to = ''
         and exists (select from deployment_status as report
                      where report.deployment_id = deployment.id and report.address = deployment.address
                        and report.generation = deployment.generation and report.state = 'refused')
         for no key update of deployment skip locked),
    released as (
      update deployment
         set address = '', generation = deployment.generation + 1, updated_at = tenure_now()
        from freed
       where deployment.id = freed.id
      returning deployment.id, deployment.generation, tenure_deployment_name(deployment) as name,
                freed.address as former),
    logged as (
      insert into event (event, message, subject, details)
      select ${RELEASED.event}, 'deployment ' || name || ' was taken from a node that refuses it', id::text,
             jsonb_build_object('address', former, 'generation', generation)
        from released)
    select id, generation from released`);
  return rows;
}
