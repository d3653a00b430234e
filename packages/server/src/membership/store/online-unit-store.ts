import type { Db } from "../../store/db.ts";
import { sql } from "../../store/sql.ts";
import { soundUnit } from "./node-unit-reader.ts";
import type { NodeUnitRow } from "./node-unit-store.ts";

/** A node-unit as it was read, with the hash of what it had then, which renewals do not change. */
export interface KnownUnit {
  mark: string;
  row: NodeUnitRow;
}

export interface OnlineRead {
  /** Of all node-units that are online. It is the same as long as none joined, left or changed. */
  digest: string;
  /** Those that are present and were not renewed for a while. */
  silent: ReadonlySet<string>;
  /** In the order of their addresses. */
  changed: readonly KnownUnit[];
  /** Those that are known and not online; without a row if it was deleted. */
  gone: readonly { address: string; row: NodeUnitRow | undefined }[];
}

/** The columns of the look that are not of the row. */
interface Look {
  look_digest: string | null;
  look_silent: string[] | null;
  look_address: string | null;
  look_gone: boolean;
  look_mark: string;
}

/**
 * The node-units that are online, present or not, compared with those that are known; without `known` only their digest.
 * A presence that ran out is online until the hourly sweep. Node-units that left are not read, except those that are known.
 */
export async function readOnlineUnits(
  db: Db,
  silentWithinMs: number,
  known?: ReadonlyMap<string, KnownUnit>,
): Promise<OnlineRead> {
  const addresses = known ? [...known.keys()] : null;
  const marks = known ? [...known.values()].map(({ mark }) => mark) : null;
  const { rows } = await db.query<Look & NodeUnitRow>(sql`
    with moment as materialized (select tenure_now() as now),
    unit as materialized (
      select address, lost_at > now as present,
             lost_at > now and presence_expires_at <= now + ${silentWithinMs} * interval '1 ms' as silent,
             hash_record_extended(
               row(address, name, version, instance_id, boot_id, epoch, left_at, claim_policy, labels,
                   trusted_package_regexp, custom_command, draining, tags, joined_at, tenants, lost_at > now), 0) as mark
        from node_unit_now, moment
       where online and epoch > 0 and epoch < 9007199254740991),
    total as (
      select count(*) || ' ' || coalesce(bit_xor(mark), 0) as digest,
             coalesce(array_agg(address) filter (where silent), '{}') as silent
        from unit),
    known as (
      select * from unnest(${addresses}::text[], ${marks}::bigint[]) as known (address, mark)),
    changed as (
      select address, unit.mark, unit.present, unit.address is null as gone,
             row_number() over (order by unit.address is null, address collate "C") as place
        from unit full join known using (address)
       where ${addresses}::text[] is not null and unit.mark is distinct from known.mark)
    select case when place > 1 then null else digest end as look_digest,
           case when place > 1 then null else silent end as look_silent,
           changed.address as look_address, changed.gone as look_gone, changed.mark::text as look_mark,
           now_row.*, coalesce(changed.present, now_row.online and now_row.lost_at > moment.now) as present
      from moment cross join total
      left join changed on true
      -- With an offset, so that it is a search by address for each and never a scan of all node-units there ever were.
      left join lateral (select * from node_unit_now where address = changed.address offset 0) as now_row on true
     order by place`);
  const first = rows[0]!;
  return {
    digest: first.look_digest!,
    silent: new Set(first.look_silent),
    changed: rows.filter(isChanged).map((look) => ({ mark: look.look_mark, row: rowOf(look) })),
    gone: rows
      .filter(({ look_gone }) => look_gone)
      .map((look) => ({
        address: look.look_address!,
        row: look.address === null ? undefined : rowOf(look),
      })),
  };
}

const isChanged = ({ look_address, look_gone }: Look): boolean =>
  look_address !== null && !look_gone;

function rowOf(look: Look & NodeUnitRow): NodeUnitRow {
  const { look_digest: _, look_silent, look_address, look_gone, look_mark, ...row } = look;
  return soundUnit(row);
}

/** The rows of those that are online, as a first look reads them. */
export async function listOnlineUnits(db: Db): Promise<NodeUnitRow[]> {
  const { changed } = await readOnlineUnits(db, 0, new Map());
  return changed.map(({ row }) => row);
}
