import { createHash } from "node:crypto";
import { type EnvValue, type ListedDeployment, loadersOf } from "@tenure/protocol";
import type { PackageSpec } from "../install/package-spec.ts";
import type { DesiredDeployment } from "./contract.ts";

/** The goal for one deployment on this node. */
export type Goal = GoalOf & {
  deploymentId: string;
  generation: number;
  specHash: string;
  isDaemon: boolean;
  lostAfterMs: number;
  /** The child's `TENURE_TOKEN`, the same for the whole generation. */
  childToken: string | undefined;
  /** Goals with equal keys need no change. */
  key: string;
};

type GoalOf =
  | { kind: "run"; spec: GoalSpec }
  /** Installed, not started. */
  | { kind: "prepare"; spec: GoalSpec }
  /** Stopped, for a reason. */
  | { kind: "hold"; reason: string | null }
  | { kind: "refused"; reason: string }
  | { kind: "gone" };

/** What a child runs, with references in place of its secrets. */
export interface GoalSpec extends Omit<ChildSpec, "env"> {
  env: Readonly<Record<string, EnvValue>>;
}

/** What a child runs. */
export interface ChildSpec {
  /** `undefined`: the command alone. */
  package: PackageSpec | undefined;
  /** Empty: the entry point of the package. */
  command: string;
  args: readonly string[];
  env: Readonly<Record<string, string>>;
}

/**
 * Returns the goal for a row. Its key is the generation and the specification: only a change of one of them needs another
 * child. `undefined`: the row has no arguments and environment, so what to run is not known yet.
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

/** The goal of a deployment that does not belong on this node any more. */
export const goneAfter = (former: Goal): Goal => ({ ...former, kind: "gone", key: "gone" });

function hashOf(row: SpecFields): string {
  const env = Object.entries(row.env ?? {}).sort(([a], [b]) => (a < b ? -1 : 1));
  const versions = Object.entries(row.secret_versions ?? {}).sort(([a], [b]) => (a < b ? -1 : 1));
  const parts = [
    ...[row.package_name, row.package_version, row.command, row.args ?? [], env],
    ...(versions.length > 0 ? [versions] : []),
  ];
  return createHash("sha256").update(JSON.stringify(parts)).digest("hex").slice(0, 32);
}

type SpecFields = Pick<
  ListedDeployment,
  "package_name" | "package_version" | "command" | "args" | "env" | "secret_versions"
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
    childToken: row.child_token,
    key: [of.kind, row.generation, specHash, reason].join(" "),
  };
}

function specOf(row: SpecFields): GoalSpec {
  const { package_name, package_version, command, args = [], env = {} } = row;
  return {
    package: package_name === "" ? undefined : { name: package_name, version: package_version },
    command,
    args,
    env,
  };
}
