import type { Client } from "pg";

/** A column as the schema describes it. */
export interface Column {
  table: string;
  name: string;
  /** As `information_schema` names it. */
  type: string;
  nullable: boolean;
  /** Part of the primary key. */
  key: boolean;
  /** Refers to another table. */
  refers: boolean;
}

export interface BadRow {
  table: string;
  column: string;
  /** As JSON, which `jsonb_populate_record` turns into the column's type. */
  value: unknown;
}

const LONG = "x".repeat(5_000);
const DEEP = JSON.parse(`${'{"a":'.repeat(100)}1${"}".repeat(100)}`) as unknown;

/** Values that a type takes and an application may not expect. A boolean has none: both of its values are good. */
const VALUES: Record<string, readonly unknown[]> = {
  text: ["", LONG, "a\u0001\n\u202eb", "{}"],
  jsonb: [
    1,
    "text",
    true,
    [],
    [1],
    [null],
    {},
    { a: 1 },
    { a: null },
    { "": "" },
    { a: LONG },
    DEEP,
  ],
  integer: [-1, 2_147_483_647, -2_147_483_648],
  bigint: [-1, "9007199254740993", "9223372036854775807"],
  "timestamp with time zone": ["infinity", "-infinity", "0001-01-01", "294276-12-31"],
  uuid: ["00000000-0000-0000-0000-000000000000"],
  xid8: ["1", "18446744073709551615"],
  ARRAY: [[], [""], [LONG], [null], [["a"], ["b"]]],
  boolean: [],
  oid: [0, 4_294_967_295],
  bytea: ["\\x", "\\x00", `\\x${"ab".repeat(5_000)}`],
  pg_lsn: ["0/0", "FFFFFFFF/FFFFFFFF"],
};

/** Written by the migrator alone, before anything else runs. */
const NOT_OURS = ["tenure_migration", "schema_migration", "migration"];

export async function readColumns(client: Client): Promise<Column[]> {
  const { rows } = await client.query<Column>(`
    select c.table_name as table, c.column_name as name, c.data_type as type,
           c.is_nullable = 'YES' as nullable,
           coalesce(bool_or(k.contype = 'p'), false) as key,
           coalesce(bool_or(k.contype = 'f'), false) as refers
      from information_schema.columns c
      join information_schema.tables t
        on t.table_schema = c.table_schema and t.table_name = c.table_name and t.table_type = 'BASE TABLE'
      join pg_class r on r.relname = c.table_name and r.relnamespace = 'public'::regnamespace
      join pg_attribute a on a.attrelid = r.oid and a.attname = c.column_name
      left join pg_constraint k on k.conrelid = r.oid and a.attnum = any (k.conkey)
     where c.table_schema = 'public'
     group by c.table_name, c.column_name, c.data_type, c.is_nullable, c.ordinal_position
     order by c.table_name, c.ordinal_position`);
  return rows.filter(({ table }) => !NOT_OURS.some((name) => table.startsWith(name)));
}

/** Every bad row there is for these columns, and the columns of which no bad value is known. */
export function badRowsOf(columns: readonly Column[]): { rows: BadRow[]; uncovered: string[] } {
  const rows: BadRow[] = [];
  const uncovered: string[] = [];
  for (const { table, name, type, nullable, refers } of columns) {
    const values = VALUES[type];
    if (!values) uncovered.push(`${table}.${name} (${type})`);
    // What refers to another table can only hold what is there.
    const tried = refers ? [] : [...(values ?? []), ...(nullable ? [null] : [])];
    rows.push(...tried.map((value) => ({ table, column: name, value })));
  }
  return { rows, uncovered };
}

/** A row of each table to copy, as JSON. A table without any has none. */
export async function readBases(
  client: Client,
  tables: readonly string[],
): Promise<Map<string, Record<string, unknown>>> {
  const bases = new Map<string, Record<string, unknown>>();
  for (const table of tables) {
    const { rows } = await client.query(`select to_jsonb(t) as row from "${table}" t limit 1`);
    if (rows[0]) bases.set(table, rows[0].row);
  }
  return bases;
}

/**
 * Writes a copy of `base` with a key of its own and one bad value. Returns that key, to remove it by; undefined where SQL
 * itself refuses the value.
 */
export async function insertBadRow(
  client: Client,
  columns: readonly Column[],
  { bad: { table, column, value }, base, n }: { bad: BadRow; base: object; n: number },
): Promise<Record<string, unknown> | undefined> {
  const own = columns.filter((each) => each.table === table);
  const keys = own.filter(({ key }) => key);
  const fresh = keys
    .filter(({ refers }) => !refers)
    .map(({ name, type }) => [name, keyValue(type, n)] as const);
  const row: Record<string, unknown> = {
    ...base,
    ...Object.fromEntries(fresh),
    [column]: value,
  };
  const names = keys.length > 0 ? keys.map(({ name }) => name) : ["id"];
  try {
    await client.query(
      `insert into "${table}" select * from jsonb_populate_record(null::"${table}", $1)`,
      [JSON.stringify(row)],
    );
    return Object.fromEntries(names.map((name) => [name, row[name]]));
  } catch {
    return undefined;
  }
}

function keyValue(type: string, n: number): unknown {
  if (type === "uuid") return `00000000-0000-4000-8000-${String(n).padStart(12, "0")}`;
  return type === "text" ? `bad-${n}` : 1_000_000 + n;
}

export async function removeRow(
  client: Client,
  table: string,
  key: Record<string, unknown>,
): Promise<void> {
  await client.query(`delete from "${table}" t where to_jsonb(t) @> $1`, [JSON.stringify(key)]);
}
