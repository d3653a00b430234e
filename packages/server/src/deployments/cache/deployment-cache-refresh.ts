import type { Clock } from "../../kernel/clock.ts";
import type { Log } from "../../kernel/log.ts";
import { every, type Service } from "../../kernel/service.ts";
import type { PostgresStore } from "../../store/db.ts";
import type { DeploymentRow } from "../deployment-row.ts";
import {
  BEGINNING,
  currentMark,
  deploymentsSince,
  type Mark,
  removedSince,
  reportedSince,
} from "../store/change-store.ts";
import { lastGoodSpecifications } from "../store/revision-store.ts";
import { hasGoodSpecification } from "../store/row-reader.ts";
import { type ChangeLog, createChangeLog } from "./deployment-cache.ts";
import { skippedForm } from "./skipped-row.ts";

const CHANNEL = "tenure_deployment";
const FALLBACK_INTERVAL_MS = 5_000;
/** Removals are kept for a day in Postgres; whoever slept for most of it cannot trust them to be complete. */
const TRUSTED_GAP_MS = 12 * 3_600_000;

export interface RowChange {
  id: string;
  before: DeploymentRow | undefined;
  after: DeploymentRow | undefined;
}

export interface CopyLook {
  changes: RowChange[];
  /** Deployments of which nodes said something new. */
  reported: string[];
}

export interface DeploymentCopy extends Service {
  readonly log: ChangeLog;
  /** Whether it has been read at all: before that an empty list would mean "stop everything". */
  isRead(): boolean;
  /** Looks now; resolves when a look that began after this call has ended, well or not. */
  refresh(): Promise<void>;
}

/**
 * This instance's one copy of the table. A change wakes it, wherever it was made; besides, it looks every few
 * seconds. A look reads what was written since the last one and nothing else.
 */
export function createDeploymentCopy({
  db,
  clock,
  log,
  onLook,
}: {
  db: PostgresStore;
  clock: Clock;
  log: Log;
  onLook: (look: CopyLook) => Promise<void>;
}): DeploymentCopy {
  const changes = createChangeLog();
  let mark: Mark = BEGINNING;
  let lastLookMs: number | undefined;
  let waiting: Array<() => void> = [];
  let stopped = false;

  const loop = every(FALLBACK_INTERVAL_MS, look, {
    clock,
    onError: (error) =>
      log.warn({ event: "deployments.not-read", error }, "could not read the deployments"),
  });

  async function look(): Promise<void> {
    const answered = waiting;
    waiting = [];
    try {
      const next = await currentMark(db);
      const since = mustReadAll(next) ? BEGINNING : mark;
      const [rows, removed, reported] = await Promise.all([
        deploymentsSince(db, since),
        since === BEGINNING ? [] : removedSince(db, since),
        since === BEGINNING ? [] : reportedSince(db, since),
      ]);
      const kept = await keepLastGood(rows);
      const seen = apply(kept, since === BEGINNING ? absentFrom(rows) : removed);
      mark = next;
      lastLookMs = clock.monotonicMs();
      // Answered before the rest: whoever wrote a row waits only until it is readable here.
      for (const resolve of answered.splice(0)) resolve();
      if (seen.length > 0 || reported.length > 0) await onLook({ changes: seen, reported });
    } finally {
      for (const resolve of answered) resolve();
    }
  }

  /** At first, after a long silence, and when Postgres' count went back: another history came in its place. */
  function mustReadAll(next: Mark): boolean {
    if (lastLookMs === undefined || clock.monotonicMs() - lastLookMs > TRUSTED_GAP_MS) return true;
    return BigInt(next) < BigInt(mark);
  }

  function absentFrom(rows: DeploymentRow[]): string[] {
    const ids = new Set(rows.map(({ id }) => id));
    return [...changes.rows()].map(({ id }) => id).filter((id) => !ids.has(id));
  }

  /** Rows that node-units skip go on as they were: their present owner, with the last specification that was good. */
  async function keepLastGood(rows: DeploymentRow[]): Promise<DeploymentRow[]> {
    const withoutSpec = rows.filter((row) => !hasGoodSpecification(row));
    const specs = await lastGoodSpecifications(
      db,
      withoutSpec.map(({ id }) => id),
    );
    return rows.map((row) =>
      skippedForm(row, { spec: specs.get(row.id), former: changes.get(row.id) }),
    );
  }

  function apply(rows: DeploymentRow[], removed: string[]): RowChange[] {
    const seen: RowChange[] = [];
    for (const id of removed) {
      const before = changes.get(id);
      if (changes.remove(id)) seen.push({ id, before, after: undefined });
    }
    for (const row of rows) {
      const before = changes.get(row.id);
      if (changes.put(row)) seen.push({ id: row.id, before, after: row });
    }
    return seen;
  }

  return {
    log: changes,
    isRead: () => lastLookMs !== undefined,
    refresh: () =>
      new Promise((resolve) => {
        if (stopped) return resolve();
        waiting.push(resolve);
        return loop.wake();
      }),
    start() {
      db.listen(CHANNEL, () => loop.wake()).catch((error) =>
        log.warn(
          { event: "deployments.not-woken", error },
          "cannot listen for changes; looking at intervals only",
        ),
      );
      loop.start();
    },
    async stop() {
      stopped = true;
      await loop.stop();
      for (const resolve of waiting.splice(0)) resolve();
    },
  };
}
