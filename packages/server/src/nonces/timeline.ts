import { type Actor, TenureError, type TimelineStatus } from "@tenure/protocol";
import type { Log } from "../kernel/log.ts";
import type { Db } from "../store/db.ts";
import { appendEvent } from "../store/event-store.ts";
import {
  checkHistory,
  confirmHistory,
  type HistoryCheck,
  readCheckedWal,
} from "./store/timeline-store.ts";
import { newest, type Position, type Witness } from "./witness.ts";

export interface Timeline {
  /** The position of the history that was checked; throws while it is refused. */
  checked(): Promise<Position>;
  /** `nonce_commit` found another history than that of `position`: it is checked again before the next use. */
  doubt(position: Position): void;
  /** Nonces were allocated at this position. Resolves when the witnesses outside this process have stored it. */
  note(position: Position): Promise<void>;
  /** Notices a restart of Postgres while no nonce is requested. */
  tick(): Promise<void>;
  status(): TimelineStatus;
  confirm(actor?: Actor): Promise<void>;
}

export interface TimelineOptions {
  db: Db;
  witnesses: Witness[];
  log: Log;
  onStatus(status: TimelineStatus): void;
}

/**
 * Whether this Postgres is the history that numbers were given out from. A promoted standby, a restored backup or a
 * restored copy of its files may lack some; `nonce_commit` refuses what was not checked here, and `nonce_check_history`
 * decides. This process is the first witness: it remembers the highest WAL position it has seen.
 */
export function createTimeline({ db, witnesses, log, onStatus }: TimelineOptions): Timeline {
  let known: Position | undefined;
  let isChecked = false;
  let checking: Promise<Position> | undefined;
  let status: TimelineStatus = { state: "unknown", reason: "not checked yet" };

  async function check(): Promise<Position> {
    const outside = await Promise.all(witnesses.map((witness) => witness.read()));
    const witness = newest(known, ...outside);
    const found = await checkHistory(db, witness);
    await report(found);
    if (found.state === "refused") throw refusal();
    const { system_identifier: system, confirmed_at, run, wal } = found;
    // The signer's row it knew of goes on being compared while the confirmation is the same.
    const former = witness?.confirmed_at === confirmed_at ? witness : undefined;
    known = { ...former, system, confirmed_at, run, wal };
    isChecked = true;
    return known;
  }

  /** What could not be checked is not confirmed. */
  function failed(error: unknown): never {
    if (status.state === "confirmed") {
      status = { state: "unknown", reason: "could not be checked" };
      onStatus(status);
    }
    throw error;
  }

  async function report(found: HistoryCheck): Promise<void> {
    const { state, reason, is_new, ...position } = found;
    const former = status;
    status = STATUS[state](reason);
    onStatus(status);
    if (former.state === status.state && former.reason === status.reason) return;
    if (state === "unknown")
      log.warn({ event: "timeline.unknown" }, status.reason ?? "not checked");
    if (state !== "refused") return;
    const message =
      "Postgres may lack nonces that were given out; none is given out until an operator runs tenure cluster confirm-timeline";
    log.error({ event: "timeline.refused", reason, ...position }, message);
    if (is_new)
      await appendEvent(db, {
        event: "timeline.refused",
        code: "DEPENDENCY_DOWN",
        message,
        details: { reason, ...position },
      });
  }

  return {
    async checked() {
      if (isChecked && known) return known;
      checking ??= check()
        .catch(failed)
        .finally(() => {
          checking = undefined;
        });
      return checking;
    },
    doubt(position) {
      // Another caller may have checked again since: that answer is newer than the doubt.
      if (known?.run === position.run && known.confirmed_at === position.confirmed_at)
        isChecked = false;
    },
    async note(position) {
      if (known?.run === position.run) known = newest(known, position);
      await Promise.all(witnesses.map((witness) => witness.write(position)));
    },
    async tick() {
      const position = isChecked ? known : undefined;
      const wal = position && (await readCheckedWal(db, position));
      if (position && wal) {
        if (known?.run === position.run) known = newest(known, { ...known, wal });
        return;
      }
      isChecked = false;
      await this.checked().catch((error: unknown) => {
        if (status.state !== "unconfirmed") throw error;
      });
    },
    status: () => status,
    async confirm(actor) {
      const outside = await Promise.all(witnesses.map((witness) => witness.read()));
      const confirmed = await confirmHistory(db, newest(known, ...outside));
      const message = "an operator accepted the history of this Postgres";
      const details = { ...confirmed, ...(actor && { actor }) };
      await appendEvent(db, { event: "timeline.confirmed", message, details });
      isChecked = false;
      await this.checked();
    },
  };
}

const STATUS: Record<HistoryCheck["state"], (reason: string | null) => TimelineStatus> = {
  confirmed: () => ({ state: "confirmed" }),
  refused: (reason) => ({ state: "unconfirmed", reason: reason ?? "refused" }),
  unknown: () => ({
    state: "unknown",
    reason:
      "this role may not run pg_control_system() and pg_control_checkpoint(), so a failover or a restored copy that lost commits may go unnoticed",
  }),
};

const refusal = () =>
  new TenureError("DEPENDENCY_DOWN", { dependency: "postgres", reason: "timeline" });
