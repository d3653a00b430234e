import { ERRORS, isDeploymentType, issueText } from "@tenure/protocol";
import { type DeploymentRow, type RowProblem, tenantOf } from "./deployment-row.ts";

/**
 * Why node-units skip a row; undefined when they do not. The details have the revision, so that the same mistake in a later
 * revision is a new event, and the same row read again is not.
 */
export function skipProblem(row: DeploymentRow): RowProblem | undefined {
  const { id, type, revision, invalid } = row;
  if (invalid) {
    const what = `deployment ${row.name}`;
    const problem = ERRORS.ERR_INVALID_ROW.message({ what, reason: issueText(invalid) });
    return {
      event: "deployment.skipped",
      code: "ERR_INVALID_ROW",
      message: `${problem}; node-units skip it`,
      subject: id,
      details: { issues: invalid, revision },
    };
  }
  if (isDeploymentType(type)) return undefined;
  return {
    event: "deployment.skipped",
    code: "ERR_INVALID_TYPE",
    message: `${row.name}: ${ERRORS.ERR_INVALID_TYPE.message({ type })}; node-units skip it`,
    subject: id,
    details: { type, revision },
  };
}

/** The problems of a cached row. */
export function rowProblems(row: DeploymentRow): RowProblem[] {
  const { id, type, address, revision, generation, skipped } = row;
  if (skipped) return [skipped];
  if (type !== "daemon" || address === "") return [];
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

/**
 * Two enabled daemons of one package and version run it twice on every node: allowed, but rarely intended. Only those of one
 * tenant are compared: the event would name a daemon of another tenant.
 */
export function daemonTwins(row: DeploymentRow, rows: Iterable<DeploymentRow>): RowProblem[] {
  if (!isTwinnable(row)) return [];
  const twins = [...rows].filter(
    (other) =>
      other.id !== row.id &&
      isTwinnable(other) &&
      tenantOf(other) === tenantOf(row) &&
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
