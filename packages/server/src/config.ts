import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import type * as z from "zod";
import { assemble, CONFIG_KEYS } from "./config/keys.ts";
import {
  type ConfigFile,
  commandLineLayer,
  type Environment,
  environmentLayer,
  fileLayer,
  mergeLayers,
  type Overrides,
  type Setting,
} from "./config/layers.ts";
import { ConfigError } from "./config/problems.ts";
import { type Judged, relationProblems } from "./config/relations.ts";
import { Config } from "./config/schema.ts";

export { CONFIG_KEYS, type ConfigKey } from "./config/keys.ts";
export type { ConfigFile, Environment, Overrides } from "./config/layers.ts";
export { ConfigError } from "./config/problems.ts";
export { configWarnings, isLoopback, isWildcard } from "./config/relations.ts";
export type { Config } from "./config/schema.ts";
export { type AuthToken, tokenSha256 } from "./config/tokens.ts";

const DEFAULT_FILE = "tenure.toml";

/**
 * The settings of one server: defaults, overridden by the file, by the environment, by the command line.
 *
 * Throws one `ConfigError` with every problem there is. Names, values and relations are judged apart from each
 * other, because a typo in one section has nothing to do with a bad number in the next.
 */
export function readConfig({
  file,
  env,
  overrides = {},
}: {
  file?: ConfigFile | undefined;
  env: Environment;
  overrides?: Overrides | undefined;
}): Config {
  const layers = [fileLayer(file), environmentLayer(env), commandLineLayer(overrides)];
  const { problems, ...judged } = judgeValues(mergeLayers(layers));
  const all = [
    ...layers.flatMap((layer) => layer.problems),
    ...problems,
    ...relationProblems(judged),
  ];
  if (all.length > 0) throw new ConfigError(all);
  return judged.config;
}

/** Like `readConfig`, with the file at `path`, or `tenure.toml` in `cwd` if there is one. */
export function loadConfig({
  path,
  env,
  cwd,
  overrides,
}: {
  path?: string | undefined;
  env: Environment;
  cwd: string;
  overrides?: Overrides | undefined;
}): Config {
  return readConfig({ file: openFile({ path, cwd }), env, overrides });
}

function openFile({ path, cwd }: { path: string | undefined; cwd: string }) {
  try {
    const text = readFileSync(resolve(cwd, path ?? DEFAULT_FILE), "utf8");
    return { path: path ?? DEFAULT_FILE, text };
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === "ENOENT" && path === undefined) return undefined;
    const reason = code === "ENOENT" ? "there is no such file" : `it cannot be read (${code})`;
    throw new ConfigError([`${path ?? DEFAULT_FILE}: ${reason}`]);
  }
}

/** Parses every value. One that is refused is reported and left at its default, so that the rest can be judged. */
function judgeValues(settings: ReadonlyMap<string, Setting>): Judged & { problems: string[] } {
  const parsed = Config.safeParse(assemble((path) => settings.get(path)?.value));
  if (parsed.success) return { config: parsed.data, settings, broken: new Set(), problems: [] };

  const { issues } = parsed.error;
  const broken = new Set(issues.map(keyOf));
  const sound = (path: string) => (broken.has(path) ? undefined : settings.get(path)?.value);
  const problems = new Set(issues.map((issue) => describeIssue(issue, settings)));
  return { config: Config.parse(assemble(sound)), settings, broken, problems: [...problems] };
}

function describeIssue(issue: z.core.$ZodIssue, settings: ReadonlyMap<string, Setting>): string {
  const path = keyOf(issue);
  const setting = settings.get(path);
  const [entry, ...field] = issue.path.slice(path.split(".").length);
  const entryOrigin = typeof entry === "number" && setting?.entryOrigins?.[entry];
  const place = entryOrigin
    ? [`${entryOrigin}:`, ...field.map(nameInList)]
    : [`${setting?.origin}:`, path, ...[entry ?? [], field].flat().map(nameInList)];
  return [...place, issue.message].join(" ");
}

const nameInList = (name: PropertyKey): string =>
  typeof name === "number" ? `entry ${name + 1}` : String(name);

function keyOf(issue: z.core.$ZodIssue): string {
  const path = issue.path.join(".");
  const key = CONFIG_KEYS.find((key) => path === key.path || path.startsWith(`${key.path}.`));
  return key?.path ?? path;
}
