export interface Row {
  what: string;
  /** With the unit, e.g. `96 MB`. */
  ours: string;
  /** The peer's figure, or the limit's. */
  beside: string;
  ratio: string;
  target: string;
}

const HEADINGS: Row = {
  what: "what",
  ours: "ours",
  beside: "beside",
  ratio: "ratio",
  target: "target",
};

/** Aligned columns; figures to the right, the first column and the last to the left. The first row has the headings. */
export function renderColumns(rows: readonly (readonly string[])[]): string {
  const last = (rows[0]?.length ?? 0) - 1;
  const widths = rows[0]?.map((_, n) => Math.max(...rows.map((row) => row[n]?.length ?? 0))) ?? [];
  const cell = (text: string, n: number) =>
    n === 0 || n === last ? text.padEnd(widths[n] ?? 0) : text.padStart(widths[n] ?? 0);
  return rows.map((row) => row.map(cell).join("  ").trimEnd()).join("\n");
}

export function renderTable(rows: readonly Row[], beside: string): string {
  const columns = Object.keys(HEADINGS) as (keyof Row)[];
  const all = [{ ...HEADINGS, beside }, ...rows];
  return renderColumns(all.map((row) => columns.map((column) => row[column])));
}

export const median = (values: readonly number[]): number =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN;
