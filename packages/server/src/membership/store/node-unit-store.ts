import { DEFAULT_TENANT, type FieldIssue } from "@tenure/protocol";
import type { Scope } from "../../kernel/scope.ts";
import type { Db } from "../../store/db.ts";
import { json, sql } from "../../store/sql.ts";
import type { Moment } from "./confirmation-store.ts";
import { soundUnit } from "./node-unit-reader.ts";

/**
 * The view of the members keeps a row until something other than a renewal changes it: there `presence_expires_at`, `renewed_at`
 * and `lost_at` are those of that change.
 */
export interface NodeUnitRow {
  address: string;
  name: string;
  version: string;
  instance_id: string;
  boot_id: string;
  epoch: number;
  online: boolean;
  presence_expires_at: Date;
  left_at: Date | null;
  claim_policy: string;
  labels: Record<string, string>;
  trusted_package_regexp: string;
  custom_command: boolean;
  draining: boolean;
  tags: Record<string, string | boolean>;
  /** The tenants it serves. One that joined through an instance of 0.1.0 serves `default`. */
  tenants?: string[];
  joined_at: Date;
  /** When its presence was renewed last; null in a row that was not written since the column exists. */
  renewed_at: Date | null;
  /** It stopped answering instead of closing its connection. */
  left_silently: boolean;
  /** When it was lost, or will be if its presence is not renewed. */
  lost_at: Date;
  /** Online and not lost, by the database's clock. */
  present: boolean;
  /** Columns that could not be read. Each has a neutral value here. */
  invalid?: readonly FieldIssue[];
}

export type NewNodeUnit = Pick<
  NodeUnitRow,
  | "address"
  | "name"
  | "version"
  | "instance_id"
  | "boot_id"
  | "epoch"
  | "claim_policy"
  | "labels"
  | "trusted_package_regexp"
  | "custom_command"
  | "tags"
  | "tenants"
>;

/** One number per connection, from one sequence for the whole fleet. */
export async function nextEpochs(db: Db, count: number): Promise<number[]> {
  const { rows } = await db.query<{ epoch: number }>(
    sql`select nextval('connection_epoch') as epoch from generate_series(1, ${count}::int)`,
  );
  return rows.map((row) => row.epoch);
}

const JOINED = { event: "node.joined" };

/** A new process of a node whose former one is over, by its own word. */
export interface Takeover {
  formerBootId: string;
  /** When every instance was asked to ping its node-units. */
  askedAt: Moment;
}

/**
 * `undefined` when another process still answers under this address, or this connection is not the newest.
 * The same boot takes its own row over: that is a reconnect, no LEAVE, and there is no event of it. So does the successor
 * of that boot, if every live instance has pinged its node-units after `askedAt` and the former boot was not renewed since.
 */
export async function joinNodeUnit(
  db: Db,
  unit: NewNodeUnit,
  ttlMs: number,
  takeover?: Takeover,
): Promise<NodeUnitRow | undefined> {
  const joined = await joinNodeUnits(db, [unit], ttlMs, takeover);
  return joined.get(unit.address);
}

/**
 * Joins several, each under the conditions of `joinNodeUnit`; those that are missing in the answer were not. An address must
 * be there once. In the order of the addresses, as renewals, so that two of them that wait for rows of each other end.
 */
export async function joinNodeUnits(
  db: Db,
  units: readonly NewNodeUnit[],
  ttlMs: number,
  takeover?: Takeover,
): Promise<Map<string, NodeUnitRow>> {
  const askedAt = takeover?.askedAt ?? null;
  const given = units.map((unit) => ({ ...unit, tenants: unit.tenants ?? [DEFAULT_TENANT] }));
  const { rows } = await db.query<NodeUnitRow>(sql`
    with moment as materialized (select tenure_now() as now),
    joined as (
      insert into node_unit as current
        (address, name, version, instance_id, boot_id, epoch, online, presence_expires_at, left_at, claim_policy,
         labels, trusted_package_regexp, custom_command, tags, tenants, tenants_epoch, joined_at)
      select unit.address, unit.name, unit.version, unit.instance_id, unit.boot_id, unit.epoch,
             true, tenure_now() + ${ttlMs} * interval '1 ms', null, unit.claim_policy, unit.labels,
             unit.trusted_package_regexp, unit.custom_command, unit.tags,
             array(select jsonb_array_elements_text(unit.tenants)), unit.epoch, (select now from moment)
        from jsonb_to_recordset(${json(given)}::jsonb) as unit (
               address text, name text, version text, instance_id text, boot_id uuid, epoch bigint, claim_policy text,
               labels jsonb, trusted_package_regexp text, custom_command boolean, tags jsonb, tenants jsonb)
       order by unit.address collate "C"
      on conflict (address) do update
         set name                   = excluded.name,
             version                = excluded.version,
             instance_id            = excluded.instance_id,
             epoch                  = excluded.epoch,
             online                 = true,
             presence_expires_at    = excluded.presence_expires_at,
             left_at                = null,
             claim_policy           = excluded.claim_policy,
             labels                 = excluded.labels,
             trusted_package_regexp = excluded.trusted_package_regexp,
             custom_command         = excluded.custom_command,
             tags                   = excluded.tags,
             tenants                = excluded.tenants,
             tenants_epoch          = excluded.tenants_epoch,
             joined_at              = case when current.boot_id = excluded.boot_id and current.online
                                           then current.joined_at else excluded.joined_at end,
             boot_id                = excluded.boot_id
       where current.epoch < excluded.epoch
         and (current.boot_id = excluded.boot_id
              or tenure_lost_at(current) <= tenure_now()
              or (current.boot_id = ${takeover?.formerBootId ?? null}::uuid
                  and current.renewed_at <= ${askedAt}::timestamptz
                  and not exists (select from instance
                                   where expires_at > tenure_now()
                                     and coalesce(confirmed_at, '-infinity') < ${askedAt}::timestamptz)))
      returning *),
    logged as (
      insert into event (event, message, subject, details)
      select ${JOINED.event}, 'node-unit ' || name || ' joined', address,
             jsonb_build_object('epoch', epoch, 'instance_id', instance_id)
        from joined, moment
       where joined_at = moment.now)
    select *, presence_expires_at as lost_at, true as present from joined`);
  return new Map(rows.map((row) => [row.address, row]));
}

export interface NodeTerm {
  address: string;
  epoch: number;
}

/** Renews presence for `ttlMs` and returns the renewed addresses. A node that is missing was replaced. */
export async function renewPresence(
  db: Db,
  units: readonly NodeTerm[],
  ttlMs: number,
): Promise<Set<string>> {
  const { rows } = await db.query<{ address: string }>(sql`
    with mine as materialized (
      select node_unit.address
        from unnest(${units.map((unit) => unit.address)}::text[], ${units.map((unit) => unit.epoch)}::bigint[])
          as term (address, epoch)
        join node_unit on node_unit.address = term.address and node_unit.epoch = term.epoch and node_unit.online
       order by node_unit.address collate "C"
         for no key update of node_unit)
    update node_unit
       set presence_expires_at = tenure_now() + ${ttlMs} * interval '1 ms'
      from mine
     where node_unit.address = mine.address
    returning node_unit.address`);
  return new Set(rows.map((row) => row.address));
}

const LEFT = { event: "node.left" };

/**
 * With its event. `silently`: it stopped answering instead of closing, which makes every instance ask its node-units whether
 * they are there. `false`: a newer connection of this node is there, so it did not leave.
 */
export async function leaveNodeUnit(
  db: Db,
  { address, epoch }: NodeTerm,
  silently = false,
): Promise<boolean> {
  const { rowCount } = await db.query(sql`
    with gone as (
      update node_unit
         set online = false, left_at = tenure_now(), left_silently = ${silently}
       where address = ${address} and epoch = ${epoch} and online
      returning address, name, epoch, instance_id)
    insert into event (event, message, subject, details)
    select ${LEFT.event}, 'node-unit ' || name || ' left', address,
           jsonb_build_object('epoch', epoch, 'instance_id', instance_id)
      from gone`);
  return rowCount === 1;
}

export async function readNodeUnits(db: Db, addresses: readonly string[]): Promise<NodeUnitRow[]> {
  if (addresses.length === 0) return [];
  const { rows } = await db.query<NodeUnitRow>(sql`
    select *, online and lost_at > tenure_now() as present
      from node_unit_now where address = any(${addresses}::text[])`);
  return rows.map(soundUnit);
}

/** By address or by name, present or not. */
export async function findNodeUnits(db: Db, ids: readonly string[]): Promise<NodeUnitRow[]> {
  if (ids.length === 0) return [];
  const { rows } = await db.query<NodeUnitRow>(sql`
    select *, online and lost_at > tenure_now() as present
      from node_unit_now
     where address = any(${ids}::text[]) or name = any(${ids}::text[])
     order by address collate "C"`);
  return rows.map(soundUnit);
}

/** One page of all node-units, by address; with `present` only those that are, or are not. */
export async function pageOfNodeUnits(
  db: Db,
  page: { scope: Scope; after: string; limit: number; present?: boolean | undefined },
): Promise<NodeUnitRow[]> {
  const { rows } = await db.query<NodeUnitRow>(sql`
    select *, online and lost_at > tenure_now() as present
      from node_unit_now
     where address collate "C" > ${page.after} and tenure_share(tenants, ${page.scope.tenants}::text[])
       and (${page.present ?? null}::boolean is null
            or (online and lost_at > tenure_now()) = ${page.present ?? null})
     order by address collate "C"
     limit ${page.limit}`);
  return rows.map(soundUnit);
}

export async function countAwayUnits(db: Db, { tenants }: Scope): Promise<number> {
  const { rows } = await db.query<{ away: number }>(sql`
    select count(*) as away from node_unit_now
     where (not online or lost_at <= tenure_now()) and tenure_share(tenants, ${tenants}::text[])`);
  return rows[0]!.away;
}

/** Marks those whose presence ran out more than an hour ago as offline, so that no regular look reads them again. */
export async function retireLostUnits(db: Db): Promise<void> {
  await db.query(sql`
    update node_unit set online = false, left_at = tenure_lost_at(node_unit)
     where online and tenure_lost_at(node_unit) < tenure_now() - interval '1 hour'`);
}

/**
 * Deletes the rows of node-units that were lost `days` ago or earlier, and answers how many. An address without a row
 * counts as lost at once, so a row stays while a deployment that it serves, also a disabled one, names its address, and while
 * it drains. A deployment of another tenant, which names it in a pin only, does not keep it.
 */
export async function forgetNodeUnits(db: Db, days: number): Promise<number> {
  const { rowCount } = await db.query(sql`
    delete from node_unit
     where tenure_lost_at(node_unit) < tenure_now() - ${days} * interval '1 day'
       and not draining
       and not exists (select from deployment
                        where deployment.address = node_unit.address
                          and tenure_serves(tenure_tenants_of(node_unit), deployment.tenant))
       and not exists (select from deployment
                        where deployment.moving_to <> '' and deployment.moving_to = node_unit.address)`);
  return rowCount;
}

/**
 * Deletes one row under the conditions of `forgetNodeUnits`, however short a time ago it left; with its event. `false`:
 * they do not hold. A node that came, claimed and left while the statement ran has a later `left_at` than `moment`.
 */
export async function removeNodeUnit(
  db: Db,
  address: string,
  details: Record<string, unknown> = {},
): Promise<boolean> {
  const { rowCount } = await db.query(sql`
    with moment as materialized (select tenure_now() as now),
    removed as (
      delete from node_unit using moment
       where node_unit.address = ${address}
         and tenure_lost_at(node_unit) <= moment.now
         and not draining
         and not exists (select from deployment
                          where deployment.address = node_unit.address
                            and tenure_serves(tenure_tenants_of(node_unit), deployment.tenant))
         and not exists (select from deployment
                          where deployment.moving_to <> '' and deployment.moving_to = node_unit.address)
      returning node_unit.address, name, tenure_tenants_of(node_unit) as tenants)
    insert into event (event, message, subject, details, tenants)
    select ${REMOVED.event}, 'node-unit ' || name || ' was removed', address, ${json(details)}::jsonb, tenants from removed`);
  return rowCount === 1;
}

const REMOVED = { event: "node.removed" };

/**
 * The addresses that were here a moment ago: online whether or not their presence has run out, or gone for
 * less than `ttlMs`. After a restart of everything these are the ones to wait for.
 */
export async function expectedAddresses(db: Db, ttlMs: number): Promise<string[]> {
  const { rows } = await db.query<{ address: string }>(sql`
    select address from node_unit
     where (online and presence_expires_at > tenure_now() - ${ttlMs} * interval '1 ms')
        or (not online and left_at > tenure_now() - ${ttlMs} * interval '1 ms')`);
  return rows.map((row) => row.address);
}

export async function setDraining(db: Db, address: string, draining: boolean): Promise<boolean> {
  const { rowCount } = await db.query(
    sql`update node_unit set draining = ${draining} where address = ${address}`,
  );
  return rowCount === 1;
}
