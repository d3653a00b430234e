import Table from "cli-table3";
import pc from "picocolors";
import { printable, printableJson } from "./printable.ts";

/** One object as JSON, or whatever `draw` makes of it for a person. */
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

/** A text, or one with a colour of ours: what a text brings along itself is never obeyed. */
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
