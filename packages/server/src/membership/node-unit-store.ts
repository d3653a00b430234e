import type { Db } from "../store/db.ts";
import { json, sql } from "../store/sql.ts";

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
  joined_at: Date;
  /** Online, and its presence has not run out, by the database's clock. */
  present: boolean;
  /** How long its presence still lasts, by the same clock; the shorter, the longer ago it was heard. */
  present_for_ms: number;
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
>;

/** One number per connection, from one sequence for the whole fleet. */
export async function nextEpochs(db: Db, count: number): Promise<number[]> {
  const { rows } = await db.query<{ epoch: number }>(
    sql`select nextval('connection_epoch') as epoch from generate_series(1, ${count}::int)`,
  );
  return rows.map((row) => row.epoch);
}

const JOINED = { event: "node.joined" };

/**
 * `undefined` when another process still answers under this address, or this connection is not the newest.
 * The same boot takes its own row over: that is a reconnect, nobody left, and there is no event of it.
 */
export async function joinNodeUnit(
  db: Db,
  unit: NewNodeUnit,
  ttlMs: number,
): Promise<NodeUnitRow | undefined> {
  const { rows } = await db.query<NodeUnitRow>(sql`
    with moment as materialized (select tenure_now() as now),
    joined as (
      insert into node_unit as current
        (address, name, version, instance_id, boot_id, epoch, online, presence_expires_at, left_at, claim_policy,
         labels, trusted_package_regexp, custom_command, tags, joined_at)
      values (${unit.address}, ${unit.name}, ${unit.version}, ${unit.instance_id}, ${unit.boot_id}, ${unit.epoch},
              true, tenure_now() + ${ttlMs} * interval '1 ms', null, ${unit.claim_policy}, ${json(unit.labels)},
              ${unit.trusted_package_regexp}, ${unit.custom_command}, ${json(unit.tags)}, (select now from moment))
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
             joined_at              = case when current.boot_id = excluded.boot_id and current.online
                                           then current.joined_at else excluded.joined_at end,
             boot_id                = excluded.boot_id
       where current.epoch < excluded.epoch
         and (current.boot_id = excluded.boot_id
              or not current.online
              or current.presence_expires_at <= tenure_now())
      returning *),
    told as (
      insert into event (event, message, subject, details)
      select ${JOINED.event}, 'node-unit ' || name || ' joined', address,
             jsonb_build_object('epoch', epoch, 'instance_id', instance_id)
        from joined, moment
       where joined_at = moment.now)
    select *, true as present, ${ttlMs}::int as present_for_ms from joined`);
  return rows[0];
}

export interface NodeTerm {
  address: string;
  epoch: number;
}

/** The addresses whose presence now lasts until `ttlMs` from here. Whoever is missing was replaced. */
export async function renewPresence(
  db: Db,
  units: NodeTerm[],
  ttlMs: number,
): Promise<Set<string>> {
  const { rows } = await db.query<{ address: string }>(sql`
    update node_unit
       set presence_expires_at = tenure_now() + ${ttlMs} * interval '1 ms'
      from unnest(${units.map((unit) => unit.address)}::text[], ${units.map((unit) => unit.epoch)}::bigint[])
        as mine (address, epoch)
     where node_unit.address = mine.address and node_unit.epoch = mine.epoch and node_unit.online
    returning node_unit.address`);
  return new Set(rows.map((row) => row.address));
}

const LEFT = { event: "node.left" };

/** With its event: nobody leaves unheard. `false`: a newer connection of this node is there, so nobody left. */
export async function leaveNodeUnit(db: Db, { address, epoch }: NodeTerm): Promise<boolean> {
  const { rowCount } = await db.query(sql`
    with gone as (
      update node_unit
         set online = false, left_at = tenure_now()
       where address = ${address} and epoch = ${epoch} and online
      returning address, name, epoch, instance_id)
    insert into event (event, message, subject, details)
    select ${LEFT.event}, 'node-unit ' || name || ' left', address,
           jsonb_build_object('epoch', epoch, 'instance_id', instance_id)
      from gone`);
  return rowCount === 1;
}

export async function listNodeUnits(db: Db): Promise<NodeUnitRow[]> {
  const { rows } = await db.query<NodeUnitRow>(sql`
    select *, online and presence_expires_at > tenure_now() as present,
           (extract(epoch from presence_expires_at - tenure_now()) * 1000)::int as present_for_ms
      from node_unit order by address`);
  return rows;
}

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
