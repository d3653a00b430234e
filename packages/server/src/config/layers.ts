import { parse as parseToml, TomlError } from "smol-toml";
import {
  CONFIG_KEYS,
  CONFIG_SECTIONS,
  type ConfigKey,
  OTHER_VARIABLES,
  TEST_VARIABLE_PREFIX,
  type ValueKind,
} from "./keys.ts";
import { ConfigError, didYouMean } from "./problems.ts";
import { AuthToken, parseTokenList, shortSecretProblems } from "./tokens.ts";

/** A value that was set, not yet validated, and its origin. */
export interface Setting {
  path: string;
  value: unknown;
  /** `tenure.toml`, `TENURE_SERVER_PORT`, `--port`. */
  origin: string;
  /** Tokens come from two places at once: where each entry is from. */
  entryOrigins?: readonly string[];
}

/** One source of settings: those it has, and the names in it that mean nothing. */
export interface Layer {
  settings: Setting[];
  problems: string[];
}

export interface ConfigFile {
  path: string;
  text: string;
}

export type Environment = Readonly<Record<string, string | undefined>>;

/** What the command line may set, by the name of the setting. */
export interface Overrides {
  port?: string | number | undefined;
  data_dir?: string | undefined;
}

export function fileLayer(file: ConfigFile | undefined): Layer {
  return file ? readTable(parseFile(file), [], file.path) : { settings: [], problems: [] };
}

/** An empty variable counts as not set: templates leave them behind, and an empty URI is not meant as "no Postgres". */
export function environmentLayer(env: Environment): Layer {
  const given = (name: string): string => env[name] ?? "";
  const shared: Setting[] = [
    { path: "server.postgres_uri", value: given("POSTGRES_URI"), origin: "POSTGRES_URI" },
  ];
  const own = CONFIG_KEYS.map((key) => variableSetting(key, given(key.env)));
  return {
    settings: [
      ...shared.filter(({ origin }) => given(origin) !== ""),
      ...own.filter(({ origin }) => given(origin) !== ""),
    ],
    problems: [
      ...Object.keys(env).filter(isUnknownVariable).map(unknownVariable),
      ...shortSecretProblems(given("TENURE_TOKENS")),
    ],
  };
}

export function commandLineLayer({ port, data_dir }: Overrides): Layer {
  const flags: Setting[] = [
    { path: "server.port", value: fromText("number", port), origin: "--port" },
    { path: "server.data_dir", value: data_dir, origin: "--data-dir" },
  ];
  return { settings: flags.filter(({ value }) => value !== undefined), problems: [] };
}

/** Later layers win, key by key. Tokens alone add up: the variable extends the file's list. */
export function mergeLayers(layers: readonly Layer[]): ReadonlyMap<string, Setting> {
  const merged = new Map<string, Setting>();
  for (const setting of layers.flatMap((layer) => layer.settings)) {
    const below = merged.get(setting.path);
    merged.set(setting.path, (below && joinedTokens(below, setting)) ?? setting);
  }
  return merged;
}

function joinedTokens(below: Setting, above: Setting): Setting | undefined {
  if (!below.entryOrigins || !above.entryOrigins) return undefined;
  return {
    ...above,
    origin: `${below.origin} and ${above.origin}`,
    value: [below.value, above.value].flat(),
    entryOrigins: [...below.entryOrigins, ...above.entryOrigins],
  };
}

function parseFile({ path, text }: ConfigFile): object {
  try {
    return parseToml(text);
  } catch (error) {
    if (!(error instanceof TomlError)) throw error;
    // Only the first line of the message: the rest quotes the file, and the file holds secrets.
    const reason = error.message.split("\n")[0]?.replace("Invalid TOML document: ", "");
    throw new ConfigError([`${path}: line ${error.line}, column ${error.column}: ${reason}`]);
  }
}

function readTable(table: object, above: readonly string[], origin: string): Layer {
  const layers = Object.entries(table).map(([name, value]: [string, unknown]): Layer => {
    const path = [...above, name].join(".");
    const key = CONFIG_KEYS.find((candidate) => candidate.path === path);
    if (key) return fileSetting(key, value, origin);
    if (!CONFIG_SECTIONS.includes(path)) return problem(unknownName(path, value, origin));
    if (isTable(value)) return readTable(value, [...above, name], origin);
    return problem(`${origin}: ${path} is a section: write [${path}] and its settings below`);
  });
  return {
    settings: layers.flatMap((layer) => layer.settings),
    problems: layers.flatMap((layer) => layer.problems),
  };
}

const problem = (sentence: string): Layer => ({ settings: [], problems: [sentence] });

function fileSetting({ path, kind }: ConfigKey, value: unknown, origin: string): Layer {
  if (kind !== "tokens" || !Array.isArray(value))
    return { settings: [{ path, value, origin }], problems: [] };
  const entryOrigins = value.map((_, index) => `${origin}: ${path} entry ${index + 1}`);
  return {
    settings: [{ path, value, origin, entryOrigins }],
    problems: value.flatMap((entry, index) => unknownTokenFields(entry, entryOrigins[index] ?? "")),
  };
}

function unknownTokenFields(entry: unknown, origin: string): string[] {
  const known = Object.keys(AuthToken.shape);
  return Object.keys(isTable(entry) ? entry : {})
    .filter((field) => !known.includes(field))
    .map((field) => `${origin}: ${field} is not a field of a token${didYouMean(field, known)}`);
}

function unknownName(path: string, value: unknown, origin: string): string {
  return isTable(value) || (Array.isArray(value) && value.some(isTable))
    ? `${origin}: [${path}] is not a section${suggestedSection(path)}`
    : `${origin}: ${path} is not a setting${suggestedPath(path)}`;
}

/** The same name in another section is what was meant, before any similar name in this one. */
function suggestedPath(path: string): string {
  const names = path.split(".");
  const leaf = names.pop() ?? "";
  const prefix = names.map((name) => `${name}.`).join("");
  const paths = CONFIG_KEYS.map((key) => key.path);
  const elsewhere = paths.find((candidate) => candidate.endsWith(`.${leaf}`));
  if (elsewhere) return `; did you mean ${elsewhere}?`;
  const siblings = paths
    .filter((candidate) => candidate.startsWith(prefix))
    .map((candidate) => candidate.slice(prefix.length));
  return didYouMean(leaf, siblings, (sibling) => `${prefix}${sibling}`);
}

function suggestedSection(path: string): string {
  const elsewhere = CONFIG_SECTIONS.find((section) => section.endsWith(`.${path}`));
  if (elsewhere) return `; did you mean [${elsewhere}]?`;
  return didYouMean(path, CONFIG_SECTIONS, (section) => `[${section}]`);
}

const VARIABLES = [...CONFIG_KEYS.map((key) => key.env), ...OTHER_VARIABLES];

const isUnknownVariable = (name: string): boolean =>
  name.startsWith("TENURE_") && !name.startsWith(TEST_VARIABLE_PREFIX) && !VARIABLES.includes(name);

/** A section too few or too many is what was meant, before any similar name. */
function unknownVariable(name: string): string {
  const rest = name.slice("TENURE_".length);
  const near = CONFIG_KEYS.find(
    ({ env }) => env.endsWith(`_${rest}`) || rest.endsWith(env.slice("TENURE".length)),
  );
  const suggestion = near
    ? `; did you mean ${near.env}?`
    : didYouMean(
        rest,
        VARIABLES.map((variable) => variable.slice("TENURE_".length)),
        (candidate) => `TENURE_${candidate}`,
      );
  return `${name}: no setting has this variable${suggestion}`;
}

function variableSetting({ path, env, kind }: ConfigKey, text: string): Setting {
  if (kind !== "tokens") return { path, value: fromText(kind, text), origin: env };
  const value = parseTokenList(text);
  const entryOrigins = value.map((_, index) => `${env}: entry ${index + 1}`);
  return { path, value, origin: env, entryOrigins };
}

/** A text that cannot be parsed as its kind stays a text, and the schema reports what is expected. */
function fromText(kind: ValueKind, text: string | number | undefined): unknown {
  if (typeof text !== "string") return text;
  if (kind === "number") return /^[+-]?\d+$/.test(text) ? Number(text) : text;
  if (kind === "boolean") return text === "true" ? true : text === "false" ? false : text;
  if (kind === "list") return text.split(",").map((entry) => entry.trim());
  return text;
}

const isTable = (value: unknown): value is object =>
  typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof Date);
