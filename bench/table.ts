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

/** Aligned columns; figures to the right. */
export function renderTable(rows: readonly Row[], beside: string): string {
  const all = [{ ...HEADINGS, beside }, ...rows];
  const columns = Object.keys(HEADINGS) as (keyof Row)[];
  const widths = columns.map((column) => Math.max(...all.map((row) => row[column].length)));
  const line = (row: Row) =>
    columns
      .map((column, index) =>
        column === "what" || column === "target"
          ? row[column].padEnd(widths[index] ?? 0)
          : row[column].padStart(widths[index] ?? 0),
      )
      .join("  ")
      .trimEnd();
  return all.map(line).join("\n");
}

export const median = (values: readonly number[]): number =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN;
