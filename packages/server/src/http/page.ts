import { TenureError } from "@tenure/protocol";

/**
 * Reads one page. `read` is asked for one row more than the page holds: that row shows that there is a next page. The
 * cursor of the next page is made from the last row of this one, or from the first row of the next.
 */
export async function readPage<Row>(
  limit: number,
  read: (limit: number) => Promise<Row[]>,
  cursorOf: (last: Row, next: Row) => string,
): Promise<{ rows: Row[]; next_cursor: string | null }> {
  const found = await read(limit + 1);
  const rows = found.slice(0, limit);
  const [last, next] = [rows.at(-1), found[limit]];
  return { rows, next_cursor: last && next ? cursorOf(last, next) : null };
}

/** A cursor that is a whole number; undefined without a cursor. */
export function numberCursor(
  cursor: string | undefined,
  max: number = Number.MAX_SAFE_INTEGER,
): number | undefined {
  if (cursor === undefined) return undefined;
  if (/^\d{1,16}$/.test(cursor) && Number(cursor) <= max) return Number(cursor);
  throw invalidCursor();
}

export const invalidCursor = (): TenureError =>
  new TenureError("INVALID_REQUEST", { reason: "cursor: invalid" });
