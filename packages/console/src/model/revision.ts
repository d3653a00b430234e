import type { DeploymentRevision } from "@tenure/protocol";
import { envText } from "./spec.ts";

export interface Difference {
  name: string;
  /** `undefined` if it was added. */
  from: string | undefined;
  /** `undefined` if it was removed. */
  to: string | undefined;
}

type Spec = Omit<DeploymentRevision, "revision" | "replaced_at">;

/** Differences between two specifications, by field and environment variable. */
export function differences(before: Spec, after: Spec): Difference[] {
  const from = flat(before);
  const to = flat(after);
  return [...new Set([...from.keys(), ...to.keys()])]
    .filter((name) => from.get(name) !== to.get(name))
    .map((name) => ({ name, from: from.get(name), to: to.get(name) }));
}

function flat(spec: Spec): Map<string, string> {
  const pairs: [string, string][] = [
    ["package", spec.package_name],
    ["version", spec.package_version],
    ["command", spec.command],
    ["type", spec.type],
    ["arguments", spec.args.length > 0 ? JSON.stringify(spec.args) : ""],
    ["moves after", spec.lost_after_ms === 0 ? "" : `${spec.lost_after_ms} ms`],
    ...Object.entries(spec.env).map(([name, value]): [string, string] => [
      `env ${name}`,
      envText(value),
    ]),
    ...Object.entries(spec.selector).map(([name, value]): [string, string] => [
      `label ${name}`,
      value,
    ]),
  ];
  return new Map(pairs.filter(([, value]) => value !== ""));
}
