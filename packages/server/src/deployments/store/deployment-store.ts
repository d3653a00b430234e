import { ANY_TENANT, DEFAULT_TENANT, type EnvValue, type Grants } from "@tenure/protocol";
import type { Scope } from "../../kernel/scope.ts";
import type { Db } from "../../store/db.ts";
import { json, sql } from "../../store/sql.ts";
import type { DeploymentRow } from "../deployment-row.ts";
import { readDeploymentRow } from "./row-reader.ts";

/** A row as JSON: whatever SQL wrote into a column, the others can be read. */
interface JsonRow {
  row: Record<string, unknown>;
}

const readRows = (rows: readonly JsonRow[]): DeploymentRow[] =>
  rows.map(({ row }) => readDeploymentRow(row));

/** The fields of a deployment that callers may set. `pin: null` removes a pin. */
export interface DeploymentChange {
  name?: string | undefined;
  package_name?: string | undefined;
  package_version?: string | undefined;
  command?: string | undefined;
  args?: readonly string[] | undefined;
  env?: Readonly<Record<string, EnvValue>> | undefined;
  type?: string | undefined;
  enabled?: boolean | undefined;
  selector?: Readonly<Record<string, string>> | undefined;
  grants?: Grants | undefined;
  lost_after_ms?: number | undefined;
  pin?: string | null | undefined;
  tenant?: string | undefined;
}

/** `undefined`: the name is taken. */
export async function createDeployment(
  db: Db,
  id: string,
  change: DeploymentChange,
): Promise<DeploymentRow | undefined> {
  const { pin, tenant = DEFAULT_TENANT } = change;
  const selector = pin ? { ...change.selector, address: pin } : (change.selector ?? {});
  const { rows } = await db.query<JsonRow>(sql`
    insert into deployment (id, tenant, name, package_name, package_version, command, args, env, type, address, enabled,
                            selector, grants, lost_after_ms, generation)
    values (${id}, ${tenant}, tenure_stored_name(${tenant}, ${change.name ?? id}), ${change.package_name ?? ""}, ${change.package_version ?? ""},
            ${change.command ?? ""}, ${json(change.args ?? [])}, ${json(change.env ?? {})},
            ${change.type ?? "deployment"}, ${pin ?? ""}, ${change.enabled ?? true}, ${json(selector)}, ${json(change.grants ?? {})},
            ${change.lost_after_ms ?? 0}, ${pin ? 1 : 0})
    on conflict (name) do nothing
    returning to_jsonb(deployment) as row`);
  return readRows(rows)[0];
}

/**
 * Changes what was given and leaves the rest, if the specification still is the one at `ifRevision`. A pin is the new
 * owner at once where nothing runs; else the row keeps its owner and is handed over (`beginPinnedMoves`). An owner that does
 * not serve the new tenant loses the row, which needs `force` while it runs: another node may start it before the owner
 * has stopped it. A move also deletes the reports of nodes that do not serve the new tenant, or are not known any more.
 * `undefined`: nothing was changed, because the row is gone, at another revision or run by such an owner.
 */
export async function changeDeployment(
  db: Db,
  id: string,
  change: DeploymentChange & { ifRevision: number | undefined; force?: boolean | undefined },
): Promise<DeploymentRow | undefined> {
  const { pin, tenant: moveTo = null } = change;
  const { rows } = await db.query<JsonRow>(sql`
    with stranger as (
      select node_unit.address
        from node_unit join deployment on node_unit.address in (deployment.address, deployment.moving_to)
       where deployment.id = ${id} and ${moveTo}::text is not null
         and not tenure_serves(tenure_tenants_of(node_unit), ${moveTo})),
    changed as (
      update deployment
         set name            = tenure_stored_name(coalesce(${moveTo}, tenant),
                                                  coalesce(${change.name ?? null}, tenure_deployment_name(deployment))),
             tenant          = coalesce(${moveTo}, tenant),
             package_name    = coalesce(${change.package_name ?? null}, package_name),
             package_version = coalesce(${change.package_version ?? null}, package_version),
             command         = coalesce(${change.command ?? null}, command),
             args            = coalesce(${change.args ? json(change.args) : null}::jsonb, args),
             env             = coalesce(${change.env ? json(change.env) : null}::jsonb, env),
             grants          = coalesce(${change.grants ? json(change.grants) : null}::jsonb, grants),
             type            = coalesce(${change.type ?? null}, type),
             enabled         = coalesce(${change.enabled ?? null}::boolean, enabled),
             lost_after_ms   = coalesce(${change.lost_after_ms ?? null}::int, lost_after_ms),
             selector        = case when ${pin === undefined} then coalesce(${change.selector ? json(change.selector) : null}::jsonb, selector)
                                    when jsonb_typeof(coalesce(${change.selector ? json(change.selector) : null}::jsonb, selector)) <> 'object'
                                    then ${json(pin ? { address: pin } : {})}::jsonb
                                    else coalesce(${change.selector ? json(change.selector) : null}::jsonb, selector) - 'address'
                                         || ${json(pin ? { address: pin } : {})}::jsonb end,
             address         = case when coalesce(${change.type ?? null}, type) = 'daemon' then ''
                                    when address in (select stranger.address from stranger) then ''
                                    when address = '' or not enabled then coalesce(${pin ?? null}, address)
                                    else address end,
             moving_to       = case when moving_to in (select stranger.address from stranger) then '' else moving_to end,
             updated_at      = tenure_now()
       where id = ${id} and (${change.ifRevision ?? null}::int is null or revision = ${change.ifRevision ?? null})
         and (${change.force ?? false} or not enabled or address not in (select stranger.address from stranger))
      returning *),
    forgotten as (
      delete from deployment_status
       using changed, deployment as former
       where deployment_status.deployment_id = changed.id and former.id = changed.id
         and former.tenant <> changed.tenant
         and not exists (select from node_unit
                          where node_unit.address = deployment_status.address
                            and tenure_serves(tenure_tenants_of(node_unit), changed.tenant)))
    select to_jsonb(changed) as row from changed`);
  return readRows(rows)[0];
}

/** Brings a former specification that can be read back as a new revision. `undefined`: gone, or no such revision. */
export async function rollBackDeployment(
  db: Db,
  id: string,
  revision: number,
): Promise<DeploymentRow | undefined> {
  const { rows } = await db.query<JsonRow>(sql`
    with former as (
      select spec from deployment_revision
       where deployment_id = ${id} and revision = ${revision})
    update deployment
       set package_name    = spec ->> 'package_name',
           package_version = spec ->> 'package_version',
           command         = spec ->> 'command',
           args            = spec -> 'args',
           env             = spec -> 'env',
           selector        = spec -> 'selector',
           grants          = coalesce(spec -> 'grants', grants),
           lost_after_ms   = (spec ->> 'lost_after_ms')::int,
           type            = coalesce(spec ->> 'type', 'deployment'),
           address         = case when spec ->> 'type' = 'daemon' then '' else address end,
           updated_at      = tenure_now()
      from former
     where id = ${id}
    returning to_jsonb(deployment) as row`);
  return readRows(rows)[0];
}

export async function deleteDeployment(db: Db, id: string): Promise<boolean> {
  const { rowCount } = await db.query(sql`delete from deployment where id = ${id}`);
  return rowCount === 1;
}

/**
 * Those of the scope with this id, else with this name: a name may look like an id, but an id is never taken for a name.
 * Several tenants may have one of the same name.
 */
export async function findDeployments(
  db: Db,
  { tenants }: Scope,
  idOrName: string,
): Promise<DeploymentRow[]> {
  const isAny = tenants.includes(ANY_TENANT);
  const { rows } = await db.query<JsonRow>(sql`
    select to_jsonb(deployment) as row from deployment
     where tenure_serves(${tenants}::text[], tenant)
       and (id = ${isUuid(idOrName) ? idOrName : null}::uuid
            or name in (select tenure_stored_name(tenant, ${idOrName}) from unnest(${tenants}::text[]) as tenant)
            or (${isAny} and tenure_deployment_name(deployment) = ${idOrName}))
     order by (id::text = ${idOrName.toLowerCase()}) desc
     limit 2`);
  const found = readRows(rows);
  const [first] = found;
  return first?.id === idOrName.toLowerCase() ? [first] : found;
}

export interface DeploymentFilter {
  scope: Scope;
  type?: string | undefined;
  enabled?: boolean | undefined;
  address?: string | undefined;
  /** Only names after this one. */
  afterName?: string | undefined;
  limit: number;
}

/** By name, in the order of the bytes: a cursor must mean the same on every server. */
export async function listDeployments(db: Db, filter: DeploymentFilter): Promise<DeploymentRow[]> {
  const { rows } = await db.query<JsonRow>(sql`
    select to_jsonb(deployment) as row from deployment
     where tenure_serves(${filter.scope.tenants}::text[], tenant)
       and (${filter.type ?? null}::text is null or type = ${filter.type ?? null})
       and (${filter.enabled ?? null}::boolean is null or enabled = ${filter.enabled ?? null}::boolean)
       and (${filter.address ?? null}::text is null or address = ${filter.address ?? null})
       and (${filter.afterName ?? null}::text is null or name collate "C" > ${filter.afterName ?? null})
     order by name collate "C"
     limit ${filter.limit}`);
  return readRows(rows);
}

const isUuid = (text: string): boolean =>
  /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i.test(text);
