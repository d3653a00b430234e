import { type Actor, TenureError } from "@tenure/protocol";
import type { Config } from "../config.ts";
import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import { every, type Service } from "../kernel/service.ts";
import type { Db } from "../store/db.ts";
import type { Telemetry } from "../telemetry.ts";
import type { Act } from "./actor.ts";
import {
  type AuditFilter,
  type AuditRow,
  appendAudit,
  forgetOldAudit,
  listAudit,
} from "./audit-store.ts";
import { openLineFile } from "./line-file.ts";
import { type Refusal, Refusals } from "./refusals.ts";

export interface AuditOptions {
  db: Db;
  log: Log;
  clock: Clock;
  instanceId: string;
  telemetry: Pick<Telemetry, "auditLost">;
  /** `[audit]`: without a `file` the lines go to the log. */
  settings: Config["audit"];
}

/** One audit entry: the action, its actor and its subject. */
export interface Deed {
  action: string;
  actor: Actor;
  subject?: string | undefined;
  details?: Record<string, unknown>;
  /** Another instance forwarded the request and has written the row. */
  isForwarded?: boolean;
}

export interface Audit extends Service {
  /** Runs an audited request. Its entry is written by the domain through `act.record`, or else right after it. */
  run<T>(deed: Deed, work: (act: Act) => Promise<T>): Promise<T>;
  refused(refusal: Refusal): void;
  list(filter: AuditFilter): Promise<AuditRow[]>;
  forgetOld(): Promise<void>;
}

const SWEEP_INTERVAL_MS = 5_000;
/** The outcome of an action that succeeded. */
const DONE = "done";
const UNEXPECTED = { code: "INTERNAL", status: 500 };

/** The audit log: rows in Postgres for a limited time, and lines in a file or the log. */
export function createAudit(options: AuditOptions): Audit {
  const { db, log, clock, instanceId, telemetry, settings } = options;
  const file =
    settings.file === ""
      ? undefined
      : openLineFile(settings.file, (lines, error) => {
          telemetry.auditLost.inc({ where: "file" }, lines.length);
          log.error(
            { event: "audit.not-written", lines, error },
            "could not write to audit.file; the lines are in this log entry",
          );
        });
  const refusals = new Refusals(clock, ({ token, ...refusal }) =>
    write({ action: "refused", ...refusal, ...(token && { token }) }),
  );
  const sweeps = every(SWEEP_INTERVAL_MS, async () => refusals.sweep(), {
    clock,
    onError: () => {},
  });

  function write(line: { action: string; [field: string]: unknown }): void {
    const at = new Date(clock.wallMs()).toISOString();
    if (file) file.write(JSON.stringify({ at, ...line, instance_id: instanceId }));
    else log.info({ event: "audit.written", ...line, instance_id: instanceId }, line.action);
  }

  async function store(tx: Db, deed: Deed, outcome: string): Promise<void> {
    const { action, subject, actor, details = {} } = deed;
    await appendAudit(tx, { action, outcome, subject, actor, instanceId, details });
  }

  /** After the request. A row that cannot be written does not undo the action. */
  async function conclude(deed: Deed, outcome: string, needsRow: boolean): Promise<void> {
    const { action, subject, actor, details = {} } = deed;
    write({ action, outcome, ...(subject !== undefined && { subject }), actor, details });
    if (!needsRow || deed.isForwarded) return;
    await store(db, deed, outcome).catch((error: unknown) => {
      telemetry.auditLost.inc({ where: "postgres" });
      log.error(
        { event: "audit.not-stored", action, actor, error },
        "could not store an audit entry in Postgres; its line was written",
      );
    });
  }

  return {
    start: sweeps.start,
    async stop() {
      await sweeps.stop();
      refusals.sweep(true);
      await file?.flush();
    },
    async run(asked, work) {
      let deed = asked;
      let isStored = false;
      const act: Act = {
        actor: asked.actor,
        async record(tx, subject) {
          deed = { ...asked, subject };
          if (!deed.isForwarded) await store(tx, deed, DONE);
          isStored = true;
        },
      };
      try {
        const answer = await work(act);
        await conclude(deed, DONE, !isStored);
        return answer;
      } catch (error) {
        const { code, status } = error instanceof TenureError ? error : UNEXPECTED;
        // A rejected write changed nothing: a line is enough. After any other error it may have been done.
        await conclude(asked, code, status >= 500);
        throw error;
      }
    },
    refused: (refusal) => refusals.note(refusal),
    list: (filter) => listAudit(db, filter),
    forgetOld: () =>
      forgetOldAudit(db, { days: settings.retention_days, entriesMax: settings.entries_max }),
  };
}
