import { readdirSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";

const SOURCE = new URL("./", import.meta.url);
const PAGE = readFileSync(new URL("../../../docs/telemetry.md", import.meta.url), "utf8");

test("docs/telemetry.md has exactly the log events of a node-unit", () => {
  expect(documented().map(({ event }) => event)).toEqual([...written().keys()].toSorted());
});

test("docs/telemetry.md has the level of every event whose level is a literal", () => {
  for (const { event, level } of documented())
    expect([event, written().get(event) || level]).toEqual([event, level]);
});

function documented(): { event: string; level: string }[] {
  const sections = PAGE.split(/^## /m);
  const section = sections.find((part) => part.startsWith("Log lines of a node-unit\n")) ?? "";
  return [...section.matchAll(/^\| `([^`]+)` \| (\w+) \|/gm)].map(([, event, level]) => ({
    event: event!,
    level: level!,
  }));
}

/** Every event of the source, with its level where both stand in one literal. */
function written(): Map<string, string> {
  const files = readdirSync(SOURCE, { recursive: true, encoding: "utf8" });
  const source = files
    .filter((file) => file.endsWith(".ts") && !file.endsWith(".test.ts"))
    .map((file) => readFileSync(new URL(file, SOURCE), "utf8"))
    .join("\n");
  const found = new Map<string, string>();
  for (const [, choice] of source.matchAll(/\bevent: ([^\n]*"[a-z-]+\.[a-z-]+"[^\n]*)/g))
    for (const [, event] of choice!.matchAll(/"([a-z-]+\.[a-z-]+)"/g)) found.set(event!, "");
  const beside = /level: "(\w+)",\s*event: "([a-z-]+\.[a-z-]+)"/g;
  for (const [, level, event] of source.matchAll(beside)) found.set(event!, level!);
  return found;
}
