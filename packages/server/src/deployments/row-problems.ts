import { ERRORS, isDeploymentType } from "@tenure/protocol";
import type { NewEvent } from "../store/event-store.ts";
import type { DeploymentRow } from "./deployment-row.ts";

export type RowProblem = NewEvent & { subject: string; details: Record<string, unknown> };

/**
 * What is wrong with a row as it is now. The details name the revision or the term that brought it: the same
 * mistake made again is another event, the same one seen again is not.
 */
export function rowProblems(row: DeploymentRow): RowProblem[] {
  const { id, type, address, revision, generation } = row;
  if (!isDeploymentType(type)) {
    return [
      {
        event: "deployment.skipped",
        code: "ERR_INVALID_TYPE",
        message: `${row.name}: ${ERRORS.ERR_INVALID_TYPE.message({ type })}; node-units skip it`,
        subject: id,
        details: { type, revision },
      },
    ];
  }
  if (type === "daemon" && address !== "") {
    return [
      {
        event: "daemon.address-ignored",
        code: "ERR_DAEMON_ADDRESS_SET",
        message: `${row.name}: ${ERRORS.ERR_DAEMON_ADDRESS_SET.message({ address })}; it is ignored`,
        subject: id,
        details: { address, generation, revision },
      },
    ];
  }
  return [];
}

/** Two enabled daemons of one package and version run it twice on every node: allowed, but rarely meant. */
export function daemonTwins(row: DeploymentRow, rows: Iterable<DeploymentRow>): RowProblem[] {
  if (!isTwinnable(row)) return [];
  const twins = [...rows].filter(
    (other) =>
      other.id !== row.id &&
      isTwinnable(other) &&
      other.package_name === row.package_name &&
      other.package_version === row.package_version,
  );
  return twins.slice(0, 1).map((twin) => ({
    event: "daemon.doubled" as const,
    message: `daemons ${row.name} and ${twin.name} both run ${row.package_name}@${row.package_version} on every node they select`,
    subject: row.id,
    details: {
      other: twin.id,
      package: `${row.package_name}@${row.package_version}`,
      revision: row.revision,
    },
  }));
}

const isTwinnable = ({ type, enabled, package_name }: DeploymentRow): boolean =>
  type === "daemon" && enabled && package_name !== "";
