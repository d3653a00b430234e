import { DEFAULT_TENANT, ERRORS, issueText } from "@tenure/protocol";
import type { Log } from "../kernel/log.ts";
import type { Db } from "../store/db.ts";
import { appendEvent, appendEventOnce } from "../store/event-store.ts";
import type { TenantBrake } from "./store/brake-store.ts";
import type { NodeUnitRow } from "./store/node-unit-store.ts";

/** Stores the events that a refresh of the members finds. */
export function createMembersEvents({ db, log }: { db: Db; log: Log }) {
  /** The last message about each row that cannot be read: the log has it once per change. */
  const logged = new Map<string, string>();

  return {
    async invalidRows(rows: readonly NodeUnitRow[]): Promise<void> {
      for (const { address, name, epoch, invalid } of rows) {
        if (!invalid) continue;
        const issues = [...invalid];
        const what = `the row of node-unit ${name}`;
        const message = ERRORS.ERR_INVALID_ROW.message({ what, reason: issueText(issues) });
        if (logged.get(address) !== message)
          log.error({ event: "node.skipped", code: "ERR_INVALID_ROW", address }, message);
        logged.set(address, message);
        await appendEventOnce(db, {
          event: "node.skipped",
          code: "ERR_INVALID_ROW",
          message,
          subject: address,
          details: { epoch, issues },
        });
      }
    },
    async brakeChanged({ tenant, active, lost, members }: TenantBrake): Promise<void> {
      const whose = tenant === DEFAULT_TENANT ? "" : ` of tenant ${tenant}`;
      const message = active
        ? `${lost} of ${members} node-units${whose} were lost at once; their deployments stay with them until they are back or an operator releases the brake`
        : `the lost node-units${whose} are back; the mass-loss brake is off`;
      const event = active ? "brake.engaged" : "brake.recovered";
      log.warn({ event, tenant, lost, members }, message);
      await appendEvent(db, { event, message, details: { tenant, lost, members } });
    },
    async presenceExpired(lost: readonly NodeUnitRow[]): Promise<void> {
      for (const { name, address, epoch, instance_id } of lost)
        await appendEventOnce(db, {
          event: "node.lost",
          message: `node-unit ${name} did not answer until its presence expired`,
          subject: address,
          details: { epoch, instance_id },
        });
    },
  };
}
