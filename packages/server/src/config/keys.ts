import * as z from "zod";
import { Config } from "./schema.ts";

/** One setting, as the documentation shows it. */
export interface ConfigKey {
  path: string;
  env: string;
  /** `undefined` = not set by default. */
  default: unknown;
  summary: string;
  kind: ValueKind;
}

/** How a text from the environment or the command line becomes a value. */
export type ValueKind = "text" | "number" | "boolean" | "list" | "tokens";

export const CONFIG_KEYS: readonly ConfigKey[] = keysOf(Config, []);

export const CONFIG_SECTIONS: readonly string[] = [
  ...new Set(CONFIG_KEYS.flatMap(({ path }) => sectionsAbove(path.split(".")))),
];

/** Variables with our prefix that are settings of other programs. */
export const OTHER_VARIABLES: readonly string[] = [
  // The command line client's server, token and tenant; every child of a deployment has TENURE_URL too.
  "TENURE_URL",
  "TENURE_TOKEN",
  "TENURE_TENANT",
  "TENURE_CA_FILE",
  "TENURE_CERT_FILE",
  "TENURE_KEY_FILE",
  // Of a node-unit.
  "TENURE_JOIN_TOKEN",
  "TENURE_JOIN_TOKEN_FILE",
  // What the executor gives to the child of a deployment, which may well be a server.
  "TENURE_DEPLOYMENT_ID",
  "TENURE_FENCING_TOKEN",
  // Test builds only.
  "TENURE_FAILPOINTS",
  "TENURE_FAILPOINTS_FILE",
];
export const TEST_VARIABLE_PREFIX = "TENURE_TEST_";

/** Builds one object in the shape of the schema, each setting's value asked for by its path. */
export function assemble(valueAt: (path: string) => unknown): object {
  return assembleSection(Config, [], valueAt);
}

function assembleSection(
  section: z.ZodObject,
  above: readonly string[],
  valueAt: (path: string) => unknown,
): object {
  return Object.fromEntries(
    Object.entries(section.shape).map(([name, part]) => {
      const path = [...above, name];
      return part instanceof z.ZodObject
        ? [name, assembleSection(part, path, valueAt)]
        : [name, valueAt(path.join("."))];
    }),
  );
}

function keysOf(section: z.ZodObject, above: readonly string[]): ConfigKey[] {
  return Object.entries(section.shape).flatMap(([name, part]) =>
    part instanceof z.ZodObject
      ? keysOf(part, [...above, name])
      : [describeKey([...above, name], part as z.ZodType)],
  );
}

function describeKey(names: readonly string[], schema: z.ZodType): ConfigKey {
  const path = names.join(".");
  return {
    path,
    env: path === "auth.tokens" ? "TENURE_TOKENS" : ["TENURE", ...names].join("_").toUpperCase(),
    default: schema.parse(undefined),
    summary: schema.description ?? "",
    kind: path === "auth.tokens" ? "tokens" : kindOf(schema),
  };
}

function kindOf(schema: z.ZodType): ValueKind {
  if (schema instanceof z.ZodDefault || schema instanceof z.ZodOptional)
    return kindOf(schema.unwrap() as z.ZodType);
  if (schema instanceof z.ZodNumber) return "number";
  if (schema instanceof z.ZodBoolean) return "boolean";
  if (schema instanceof z.ZodArray) return "list";
  return "text";
}

function sectionsAbove(names: readonly string[]): string[] {
  return names.slice(1).map((_, index) => names.slice(0, index + 1).join("."));
}
