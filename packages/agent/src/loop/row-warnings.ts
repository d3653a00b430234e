import type { ListedDeployment, SkippedDeployment } from "@tenure/protocol";
import type { AgentLog } from "../log.ts";

export interface Complaints {
  /** Rows that are wrong now. Each is told once, and again when it has changed and is still wrong. */
  rows(wrong: {
    invalid: readonly ListedDeployment[];
    strayAddress: readonly ListedDeployment[];
  }): void;
  /** Rows that could not be read at all. */
  skipped(rows: readonly SkippedDeployment[]): void;
  policyDisabled(): void;
}

const UNREADABLE_MAX = 10_000;

/** The seed's error codes, each once per change and not once per pass. */
export function createComplaints(log: AgentLog): Complaints {
  let told = new Map<string, string>();
  let policyTold = false;
  const unreadable = new Map<string, string>();

  function tell(code: "ERR_INVALID_TYPE" | "ERR_DAEMON_ADDRESS_SET", row: ListedDeployment): void {
    const details = { code, deploymentId: row.id, name: row.name };
    if (code === "ERR_INVALID_TYPE")
      log({
        level: "error",
        event: "deployment.skipped",
        message: `type ${JSON.stringify(row.type)} is neither "daemon" nor "deployment"; the row is skipped`,
        details,
      });
    else
      log({
        level: "error",
        event: "daemon.address-ignored",
        message: "a daemon has no owner: its address is ignored",
        details,
      });
  }

  return {
    rows({ invalid, strayAddress }) {
      const now = new Map<string, string>();
      const look = (code: Parameters<typeof tell>[0], row: ListedDeployment) => {
        const seen = JSON.stringify([code, row.type, row.address, row.revision, row.generation]);
        now.set(row.id, seen);
        if (told.get(row.id) !== seen) tell(code, row);
      };
      for (const row of invalid) look("ERR_INVALID_TYPE", row);
      for (const row of strayAddress) look("ERR_DAEMON_ADDRESS_SET", row);
      told = now;
    },
    skipped(rows) {
      for (const { id, reason } of rows) {
        if (unreadable.get(id) === reason) continue;
        // An id comes again only when its row changed or the whole list is read: what is remembered stays small.
        if (unreadable.size >= UNREADABLE_MAX) unreadable.clear();
        unreadable.set(id, reason);
        log({
          level: "error",
          event: "deployment.skipped",
          message: `the row cannot be read and is left as it is here: ${reason}`,
          details: { code: "ERR_INVALID_ROW", deploymentId: id },
        });
      }
    },
    policyDisabled() {
      if (policyTold) return;
      policyTold = true;
      log({
        level: "info",
        event: "claims.disabled",
        message: "the policy is none: this node runs what it owns, and neither claims nor releases",
        details: { code: "ERR_POLICY_DISABLED" },
      });
    },
  };
}
