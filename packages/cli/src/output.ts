import Table from "cli-table3";
import pc from "picocolors";

/** One object as JSON, or whatever `draw` makes of it for a person. */
export function print<T>(
  value: T,
  { json }: { json?: boolean | undefined },
  draw: (value: T) => string,
): void {
  process.stdout.write(`${json ? JSON.stringify(value, null, 2) : draw(value)}\n`);
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

export function table(headings: string[], rows: string[][]): string {
  const drawn = new Table({
    head: headings.map((heading) => pc.bold(heading)),
    chars: NO_BORDER,
    style: { head: [], border: [], "padding-left": 0, "padding-right": 0 },
  });
  drawn.push(...rows.map((row) => row.map(printable)));
  return drawn.toString();
}

/** Names come from other machines: what could move the cursor or hide text is shown as a mark instead. */
export function printable(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what this is about
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g, "\ufffd");
}
