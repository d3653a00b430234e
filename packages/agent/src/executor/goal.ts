import { createHash } from "node:crypto";
import { type ListedDeployment, loadersOf } from "@tenure/protocol";
import type { PackageSpec } from "../install/package-spec.ts";
import type { DesiredDeployment } from "./contract.ts";

/** What should be the case for one deployment on this node. */
export type Goal = GoalOf & {
  deploymentId: string;
  generation: number;
  specHash: string;
  isDaemon: boolean;
  lostAfterMs: number;
  /** Equal keys mean that nothing has to change. */
  key: string;
};

type GoalOf =
  | { kind: "run"; spec: ChildSpec }
  /** Installed, not started. */
  | { kind: "prepare"; spec: ChildSpec }
  /** Neither: stopped, and why. */
  | { kind: "hold"; reason: string | null }
  | { kind: "refused"; reason: string }
  | { kind: "gone" };

/** What makes one child different from another. */
export interface ChildSpec {
  /** `undefined`: only the command. */
  package: PackageSpec | undefined;
  /** Empty: what the package says. */
  command: string;
  args: readonly string[];
  env: Readonly<Record<string, string>>;
}

/**
 * The key of a child is its deployment, its term and its specification: a new term or a new specification is another
 * child, and nothing else is. `undefined`: the row came without arguments and environment, so it is not known yet
 * what to run.
 */
export function goalOf(
  { row, mode, refused }: DesiredDeployment,
  suspended: string | undefined,
): Goal | undefined {
  const isDaemon = row.type === "daemon";
  if (refused.length > 0)
    return goal(row, { kind: "refused", reason: `not allowed here: ${reasonsOf(row, refused)}` });
  if (mode === "hold") return goal(row, { kind: "hold", reason: null });
  if (mode === "run" && suspended !== undefined && !isDaemon)
    return goal(row, { kind: "hold", reason: suspended });
  const spec = specOf(row);
  if (mode === "prepare") return goal(row, { kind: "prepare", spec });
  return row.args && row.env ? goal(row, { kind: "run", spec }) : undefined;
}

function reasonsOf(row: ListedDeployment, refused: DesiredDeployment["refused"]): string {
  const words = refused.map((code) =>
    code === "env_not_allowed"
      ? `${code} (ENABLE_CUSTOM_COMMAND is false, and env sets ${loadersOf(row).join(", ")}, which changes which code is loaded)`
      : code,
  );
  return words.join(", ");
}

/** It is wanted no more. */
export const goneAfter = (former: Goal): Goal => ({ ...former, kind: "gone", key: "gone" });

export function hashOf(row: SpecFields): string {
  const env = Object.entries(row.env ?? {}).sort(([a], [b]) => (a < b ? -1 : 1));
  const parts = [row.package_name, row.package_version, row.command, row.args ?? [], env];
  return createHash("sha256").update(JSON.stringify(parts)).digest("hex").slice(0, 32);
}

type SpecFields = Pick<
  ListedDeployment,
  "package_name" | "package_version" | "command" | "args" | "env"
>;

function goal(row: ListedDeployment, of: GoalOf): Goal {
  const specHash = hashOf(row);
  const reason = "reason" in of ? of.reason : "";
  return {
    ...of,
    deploymentId: row.id,
    generation: row.generation,
    specHash,
    isDaemon: row.type === "daemon",
    lostAfterMs: row.lost_after_ms,
    key: [of.kind, row.generation, specHash, reason].join(" "),
  };
}

function specOf(row: SpecFields): ChildSpec {
  const { package_name, package_version, command, args = [], env = {} } = row;
  return {
    package: package_name === "" ? undefined : { name: package_name, version: package_version },
    command,
    args,
    env,
  };
}
