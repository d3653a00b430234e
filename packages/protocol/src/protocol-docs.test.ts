import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import * as z from "zod";
import {
  CALLER_ROLES,
  CLOSE_CODES,
  ErrorInfo,
  ListedDeployment,
  Member,
  NODE_CALLS,
  NodeToServer,
  ResourceUsage,
  ROUTE_LIST,
  SERVER_CALLS,
  ServerToNode,
  ServerToSession,
  SessionToServer,
} from "./index.ts";

const page = readFileSync(new URL("../../../docs/protocol.md", import.meta.url), "utf8");

/** Shapes with a table of their own; where a message holds one, its fields are not listed again. */
const SHAPES = { Member, ListedDeployment, ResourceUsage, ErrorInfo };

describe("docs/protocol.md lists exactly the messages and fields that exist", () => {
  test.each([
    ["Session to server", SessionToServer],
    ["Server to session", ServerToSession],
    ["Node to server", NodeToServer],
    ["Server to node", ServerToNode],
  ])("%s", (heading, schema) => {
    expect(documentedFields(heading)).toEqual(messageFields(schema));
  });

  test.each([
    ["Calls of a node", NODE_CALLS],
    ["Calls of a server", SERVER_CALLS],
  ])("%s", (heading, calls) => {
    const existing = Object.entries(calls).map(([method, { params, result }]) => [
      method,
      [...fieldsOf(params, "params."), ...fieldsOf(result, "result.")].sort(),
    ]);
    expect(documentedFields(heading)).toEqual(Object.fromEntries(existing));
  });

  test("Shapes", () => {
    const existing = Object.entries(SHAPES).map(([name, shape]) => [name, fieldsOf(shape).sort()]);
    expect(documentedFields("Shapes")).toEqual(Object.fromEntries(existing));
  });
});

test("docs/protocol.md lists exactly the close codes that exist", () => {
  const documented = tableRows(sections(section(page, "WebSocket"), 3)["Close codes"] ?? "");
  const existing = Object.entries(CLOSE_CODES).map(([name, code]) => [String(code), `\`${name}\``]);
  expect(documented.map((cells) => cells.slice(0, 2)).sort()).toEqual(existing.sort());
});

test("docs/protocol.md lists exactly the routes that exist, with their roles", () => {
  const table = sections(section(page, "HTTP"), 3).Routes ?? "";
  const columns = ["public", ...CALLER_ROLES];
  expect(table).toContain(`| route | ${columns.join(" | ")} | does |\n`);

  const documented = tableRows(table).map(([route, ...cells]) => ({
    route,
    roles: columns.filter((_, index) => cells[index] === "●"),
    does: cells[columns.length],
  }));
  const existing = ROUTE_LIST.map(({ method, path, roles, summary }) => ({
    route: `\`${method} ${path}\``,
    roles: columns.filter((role) => [roles].flat().some((allowed) => allowed === role)),
    does: summary,
  }));
  expect(documented).toEqual(existing);
});

// --- the source ---

/** `z.discriminatedUnion` may hold another one: calls are divided once more, by method. */
function messageFields(union: { options: readonly z.core.$ZodType[] }): Record<string, string[]> {
  const fields: Record<string, string[]> = {};
  for (const option of union.options) {
    const call = option instanceof z.ZodDiscriminatedUnion;
    const variants = (call ? option.options : [option]) as z.ZodObject[];
    for (const variant of variants) {
      const type = variant.shape.type as z.ZodLiteral<string>;
      // The parameters of each method are listed with the calls.
      const names = call ? Object.keys(variant.shape) : fieldsOf(variant);
      fields[type.value] = names.filter((name) => name !== "type").sort();
    }
  }
  return fields;
}

interface JsonSchema {
  $ref?: string;
  properties?: Record<string, JsonSchema>;
  required?: string[];
  items?: JsonSchema;
}

function fieldsOf(schema: z.core.$ZodType, prefix = ""): string[] {
  const registry = z.registry<{ id: string }>();
  for (const [id, shape] of Object.entries(SHAPES))
    if (shape !== schema) registry.add(shape, { id });
  return walk(z.toJSONSchema(schema, { metadata: registry, io: "input" }) as JsonSchema, prefix);
}

function walk(schema: JsonSchema, prefix: string): string[] {
  return Object.entries(schema.properties ?? {}).flatMap(([name, field]) => [
    `${prefix}${name}${schema.required?.includes(name) ? "" : "?"}`,
    ...walk(field, `${prefix}${name}.`),
    ...walk(field.items ?? {}, `${prefix}${name}[].`),
  ]);
}

// --- the page ---

function documentedFields(heading: string): Record<string, string[]> {
  const parts = Object.entries(sections(section(page, heading), 3));
  return Object.fromEntries(
    parts.map(([name, text]) => [
      name,
      tableRows(text)
        .map(([cell]) => (cell ?? "").replaceAll("`", ""))
        .sort(),
    ]),
  );
}

function section(text: string, heading: string): string {
  const found = sections(text, 2)[heading];
  if (found === undefined) throw new Error(`the page has no section "${heading}"`);
  return found;
}

function sections(text: string, level: number): Record<string, string> {
  const parts = text.split(new RegExp(`^${"#".repeat(level)} (.+)$`, "m")).slice(1);
  const pairs = parts.flatMap((name, index) => (index % 2 ? [] : [[name, parts[index + 1] ?? ""]]));
  if (new Set(pairs.map(([name]) => name)).size < pairs.length) throw new Error("a heading twice");
  return Object.fromEntries(pairs);
}

/** Cells of every row below a header and its rule. */
function tableRows(text: string): string[][] {
  const lines = text.split("\n").filter((line) => line.startsWith("|"));
  return lines.slice(2).map((line) =>
    line
      .split("|")
      .slice(1, -1)
      .map((cell) => cell.trim()),
  );
}
