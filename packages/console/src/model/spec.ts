import type { DeploymentCreate, DeploymentView, EnvValue } from "@tenure/protocol";

/** A specification as editable text. */
export interface Draft {
  /** Empty: the tenant of the caller's token. */
  tenant: string;
  name: string;
  type: string;
  package_name: string;
  package_version: string;
  command: string;
  args: string;
  env: string;
  selector: string;
  lost_after_s: string;
}

export const EMPTY_DRAFT: Draft = {
  tenant: "",
  name: "",
  type: "deployment",
  package_name: "",
  package_version: "",
  command: "",
  args: "",
  env: "",
  selector: "",
  lost_after_s: "0",
};

export function draftOf(view: DeploymentView): Draft {
  return {
    tenant: view.tenant ?? "default",
    name: view.name,
    type: view.type,
    package_name: view.package_name,
    package_version: view.package_version,
    command: view.command,
    args: view.args.join("\n"),
    env: linesOf(mapValues(view.env, envText)),
    selector: linesOf(view.selector),
    lost_after_s: String(view.lost_after_ms / 1_000),
  };
}

/** The fields in which the draft differs from `before`; without `before`, all fields that are set. */
export function changesOf(draft: Draft, before: Draft = EMPTY_DRAFT): DeploymentCreate {
  const is = (field: keyof Draft): boolean => draft[field] !== before[field];
  const text = ["tenant", "name", "type", "package_name", "package_version", "command"] as const;
  return {
    ...Object.fromEntries(text.filter(is).map((field) => [field, draft[field].trim()])),
    ...(is("args") && { args: draft.args === "" ? [] : draft.args.split("\n") }),
    ...(is("env") && { env: mapValues(pairsOf(draft.env), envValue) }),
    ...(is("selector") && { selector: pairsOf(draft.selector) }),
    ...(is("lost_after_s") && { lost_after_ms: Math.round(Number(draft.lost_after_s) * 1_000) }),
  };
}

/** Why the draft is invalid; `undefined` if it is valid. A token of all tenants has to name one. */
export function problemOf(
  draft: Draft,
  { needsTenant = false }: { needsTenant?: boolean } = {},
): string | undefined {
  if (needsTenant && draft.tenant.trim() === "") return "Enter the tenant that it belongs to.";
  if (draft.package_name.trim() === "" && draft.command.trim() === "")
    return "Enter a package or a command.";
  const seconds = Number(draft.lost_after_s);
  if (!Number.isFinite(seconds) || seconds < 0)
    return "The time before a move must be a number of seconds.";
  for (const [field, name] of [
    ["env", "variable"],
    ["selector", "label"],
  ] as const) {
    const bad = meaningful(draft[field]).find((line) => !/^[^=\s]+=/.test(line));
    if (bad !== undefined)
      return `Each ${name} is a line NAME=value; this is none: ${bad.slice(0, 60)}`;
  }
  return undefined;
}

/** One `name=value` per line. A value may contain `=`; empty lines are ignored. */
export function pairsOf(text: string): Record<string, string> {
  return Object.fromEntries(
    meaningful(text).map((line) => {
      const at = line.indexOf("=");
      return [line.slice(0, at).trim(), line.slice(at + 1)];
    }),
  );
}

/** A reference to a secret as text; any other value is its own text. */
export const envText = (value: EnvValue): string =>
  typeof value === "string" ? value : JSON.stringify(value);

const envValue = (text: string): EnvValue => {
  const [, secret] = /^\{"secret":"([^"\\]+)"\}$/.exec(text.trim()) ?? [];
  return secret === undefined ? text : { secret };
};

const mapValues = <From, To>(
  pairs: Record<string, From>,
  map: (value: From) => To,
): Record<string, To> =>
  Object.fromEntries(Object.entries(pairs).map(([name, value]) => [name, map(value)]));

/** A value with a line break does not fit on one line, and one that looks like a reference would become one; edit such a specification with the CLI. */
export function isEditable({ args, env }: Pick<DeploymentView, "args" | "env">): boolean {
  const values = Object.values(env);
  const isPlain = values.every((value) => typeof envValue(envText(value)) === typeof value);
  return isPlain && ![...args, ...values.map(envText)].some((value) => /[\r\n]/.test(value));
}

const linesOf = (pairs: Record<string, string>): string =>
  Object.entries(pairs)
    .map(([name, value]) => `${name}=${value}`)
    .join("\n");
const meaningful = (text: string): string[] =>
  text.split("\n").filter((line) => line.trim() !== "");
