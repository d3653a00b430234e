import type { ListedDeployment, SkippedDeployment } from "@tenure/protocol";
import type { AgentLog } from "../log.ts";

/** Logs rows that cannot be used, each once per change of the row and not once per pass. */
export interface RowWarnings {
  /** The rows that are wrong now. A row that was corrected and is wrong again is logged again. */
  rows(wrong: {
    invalid: readonly ListedDeployment[];
    addressedDaemons: readonly ListedDeployment[];
  }): void;
  /** Rows that could not be read at all. */
  skipped(rows: readonly SkippedDeployment[]): void;
  policyDisabled(): void;
}

const SKIPPED_MAX = 10_000;

const WARNINGS = {
  ERR_INVALID_TYPE: {
    event: "deployment.skipped",
    message: ({ type }: ListedDeployment) =>
      `deployment type is ${JSON.stringify(type)}, expected "daemon" or "deployment"; the row is skipped`,
  },
  ERR_DAEMON_ADDRESS_SET: {
    event: "daemon.address-ignored",
    message: () => "a daemon has an address, but runs on every node; the address is ignored",
  },
} as const;

export function createRowWarnings(log: AgentLog): RowWarnings {
  let logged = new Map<string, string>();
  let isPolicyLogged = false;
  const skipped = new Map<string, string>();

  return {
    rows({ invalid, addressedDaemons }) {
      const now = new Map<string, string>();
      const warn = (code: keyof typeof WARNINGS, row: ListedDeployment): void => {
        const state = JSON.stringify([code, row.type, row.address, row.revision, row.generation]);
        now.set(row.id, state);
        if (logged.get(row.id) === state) return;
        const { event, message } = WARNINGS[code];
        const details = { code, deploymentId: row.id, name: row.name };
        log({ level: "error", event, message: message(row), details });
      };
      for (const row of invalid) warn("ERR_INVALID_TYPE", row);
      for (const row of addressedDaemons) warn("ERR_DAEMON_ADDRESS_SET", row);
      logged = now;
    },
    skipped(rows) {
      for (const { id, reason } of rows) {
        if (skipped.get(id) === reason) continue;
        // An id comes again only when its row changed or the whole list is read, so a reset logs little twice.
        if (skipped.size >= SKIPPED_MAX) skipped.clear();
        skipped.set(id, reason);
        log({
          level: "error",
          event: "deployment.skipped",
          message: `could not read a deployment row; this node keeps its last version: ${reason}`,
          details: { code: "ERR_INVALID_ROW", deploymentId: id },
        });
      }
    },
    policyDisabled() {
      if (isPolicyLogged) return;
      isPolicyLogged = true;
      log({
        level: "info",
        event: "claims.disabled",
        message:
          "claim policy is none; this node runs what it owns, and neither claims nor releases",
        details: { code: "ERR_POLICY_DISABLED" },
      });
    },
  };
}
