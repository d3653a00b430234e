import { stripVTControlCharacters } from "node:util";
import { describe, expect, test } from "vitest";
import { table } from "./output.ts";
import { printable, printableJson } from "./printable.ts";

const HOSTILE = "a\u001b[2Jb\u009b31mc\rd\ne\u202ef\u2066g\u0007h\u200fi";

describe("text of another machine", () => {
  test("keeps its letters and loses its power over the terminal", () => {
    expect(printable(HOSTILE)).toBe("a�[2Jb�31mc�d�e�f�g�h�i");
    expect(printable("日本語 naïve ✓")).toBe("日本語 naïve ✓");
  });

  test("is the same text in JSON, and nothing a terminal would obey", () => {
    const json = printableJson({ name: HOSTILE });
    expect(JSON.parse(json)).toEqual({ name: HOSTILE });
    expect(printable(json.replaceAll("\n", ""))).toBe(json.replaceAll("\n", ""));
  });

  test("does not break a table, and cannot bring a colour of its own", () => {
    const red = "\u001b[31mred\u001b[39m";
    const lines = table(["NAME"], [[red]]).split("\n");
    expect(lines[1]).toContain("�[31mred�[39m");
    expect(table(["NAME"], [["two\nlines"]]).split("\n")).toHaveLength(2);
  });
});

test("a table stands in columns, and a colour of ours stays a colour", () => {
  const green = (text: string) => `\u001b[32m${text}\u001b[39m`;
  const drawn = table(
    ["NAME", "STATE"],
    [
      ["a", { text: "live", paint: green }],
      ["longer", "gone"],
    ],
  );
  expect(drawn).toContain("\u001b[32mlive\u001b[39m");
  const lines = stripVTControlCharacters(drawn)
    .split("\n")
    .map((line) => line.trimEnd());
  expect(lines).toEqual(["NAME    STATE", "a       live", "longer  gone"]);
});
