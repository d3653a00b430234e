import Table from "cli-table3";
import pc from "picocolors";
import { printable, printableJson } from "./printable.ts";

/** Prints a value as JSON with `--json`, else as the text that `draw` returns. */
export function print<T>(
  value: T,
  { json }: { json?: boolean | undefined },
  draw: (value: T) => string,
): void {
  process.stdout.write(`${json ? printableJson(value) : draw(value)}\n`);
}

const NO_BORDER = Object.fromEntries(
  [
    [
      "top",
      "top-mid",
      "top-left",
      "top-right",
      "bottom",
      "bottom-mid",
      "bottom-left",
      "bottom-right",
    ],
    ["left", "left-mid", "mid", "mid-mid", "right", "right-mid", "middle"],
  ]
    .flat()
    .map((place) => [place, place === "middle" ? "  " : ""]),
);

/** A text, optionally coloured. Control characters in the text itself are removed. */
export type Cell = string | { text: string; paint: (text: string) => string };

export function table(headings: string[], rows: Cell[][]): string {
  const drawn = new Table({
    head: headings.map((heading) => pc.bold(heading)),
    chars: NO_BORDER,
    style: { head: [], border: [], "padding-left": 0, "padding-right": 0 },
  });
  drawn.push(...rows.map((row) => row.map(render)));
  return drawn.toString();
}

function render(cell: Cell): string {
  return typeof cell === "string" ? printable(cell) : cell.paint(printable(cell.text));
}

/** One line per name and value, with the values aligned. */
export function fields(pairs: ReadonlyArray<readonly [string, string]>): string {
  const width = Math.max(...pairs.map(([name]) => name.length));
  return pairs
    .map(([name, value]) => `${pc.dim(name.padEnd(width))}  ${printable(value)}`)
    .join("\n");
}

/** Shortens a long id for display. Commands take the whole id or the name. */
export function shortId(id: string): string {
  return id.length > 16 ? `${id.slice(0, 6)}…${id.slice(-4)}` : id;
}

/** Cuts a text to the width, for a table; `--json` and `show` have all of it. */
export function cut(text: string, width: number): string {
  return text.length > width ? `${text.slice(0, width - 1)}…` : text;
}

/** `3s`, `12m`, `5h`, `9d` ago. */
export function ago(at: string, nowMs: number = Date.now()): string {
  const seconds = Math.max(0, Math.round((nowMs - Date.parse(at)) / 1_000));
  const [size, unit] = UNITS.find(([size]) => seconds >= size) ?? [1, "s"];
  return `${Math.floor(seconds / size)}${unit}`;
}

const UNITS: ReadonlyArray<readonly [number, string]> = [
  [86_400, "d"],
  [3_600, "h"],
  [60, "m"],
];
