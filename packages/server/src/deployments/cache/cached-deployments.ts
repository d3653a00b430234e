import type { Clock } from "../../kernel/clock.ts";
import type { Log } from "../../kernel/log.ts";
import type { PostgresStore } from "../../store/db.ts";
import { createTableRefresh, type TableRefresh } from "../../store/table-refresh.ts";
import type { DeploymentRow } from "../deployment-row.ts";
import {
  BEGINNING,
  currentMark,
  deploymentsSince,
  type Mark,
  removedSince,
  reportedRefused,
  reportedSince,
} from "../store/change-store.ts";
import { lastGoodSpecifications } from "../store/revision-store.ts";
import { hasGoodSpecification } from "../store/row-reader.ts";
import { createDeploymentCache, type DeploymentCache } from "./deployment-cache.ts";
import { skippedForm } from "./skipped-row.ts";

const FALLBACK_INTERVAL_MS = 5_000;
/** Postgres keeps removals for a day: after a longer gap than this they may be incomplete, and everything is read. */
const TRUSTED_GAP_MS = 12 * 3_600_000;

export interface RowChange {
  id: string;
  before: DeploymentRow | undefined;
  after: DeploymentRow | undefined;
}

export interface CacheRefresh {
  changes: RowChange[];
  /** Deployments that nodes reported something new about. */
  reported: readonly string[];
}

export interface CachedDeployments extends TableRefresh {
  readonly cache: DeploymentCache;
  /** The nodes that report to refuse a deployment, by its id: its owner, or former ones. */
  refused(): ReadonlyMap<string, readonly string[]>;
  /** False until the first read has ended: before that an empty list would mean "stop everything". */
  isRead(): boolean;
}

/** This instance's cache of the table. A refresh reads only what was written since the last one. */
export function createCachedDeployments({
  db,
  clock,
  log,
  onRefresh,
}: {
  db: PostgresStore;
  clock: Clock;
  log: Log;
  onRefresh: (refresh: CacheRefresh) => Promise<void>;
}): CachedDeployments {
  const cache = createDeploymentCache();
  const refused = new Map<string, readonly string[]>();
  let mark: Mark = BEGINNING;
  let lastReadMs: number | undefined;

  async function read(onReadable: () => void): Promise<void> {
    const next = await currentMark(db);
    const since = mustReadAll(next) ? BEGINNING : mark;
    const [rows, removed, reports] = await Promise.all([
      deploymentsSince(db, since),
      since === BEGINNING ? [] : removedSince(db, since),
      since === BEGINNING ? reportedRefused(db) : reportedSince(db, since),
    ]);
    const reported = since === BEGINNING ? [] : reports.map(({ id }) => id);
    const kept = await keepLastGood(rows);
    const changes = apply(kept, since === BEGINNING ? absentFrom(rows) : removed);
    if (since === BEGINNING) refused.clear();
    for (const { id, refused_by: by } of reports)
      by.length > 0 ? refused.set(id, by) : refused.delete(id);
    for (const { id, after } of changes) if (!after) refused.delete(id);
    mark = next;
    lastReadMs = clock.monotonicMs();
    onReadable();
    if (changes.length > 0 || reported.length > 0) await onRefresh({ changes, reported });
  }

  /** At the first read, after a long gap, and when Postgres' transaction ids went back: a backup was restored. */
  function mustReadAll(next: Mark): boolean {
    if (lastReadMs === undefined || clock.monotonicMs() - lastReadMs > TRUSTED_GAP_MS) return true;
    return BigInt(next) < BigInt(mark);
  }

  function absentFrom(rows: DeploymentRow[]): string[] {
    const ids = new Set(rows.map(({ id }) => id));
    return [...cache.rows()].map(({ id }) => id).filter((id) => !ids.has(id));
  }

  /** Rows that node-units skip keep their owner and their last good specification. */
  async function keepLastGood(rows: DeploymentRow[]): Promise<DeploymentRow[]> {
    const withoutSpec = rows.filter((row) => !hasGoodSpecification(row));
    const specs = await lastGoodSpecifications(
      db,
      withoutSpec.map(({ id }) => id),
    );
    return rows.map((row) =>
      skippedForm(row, { spec: specs.get(row.id), former: cache.get(row.id) }),
    );
  }

  function apply(rows: DeploymentRow[], removed: string[]): RowChange[] {
    const changes: RowChange[] = [];
    for (const id of removed) {
      const before = cache.get(id);
      if (cache.remove(id)) changes.push({ id, before, after: undefined });
    }
    for (const row of rows) {
      const before = cache.get(row.id);
      if (cache.put(row)) changes.push({ id: row.id, before, after: row });
    }
    return changes;
  }

  const refresh = createTableRefresh({
    ...{ db, clock, channel: "tenure_deployment", intervalMs: FALLBACK_INTERVAL_MS, read },
    onReadError: (error) =>
      log.warn(
        { event: "deployments.not-read", error },
        "could not read the deployments; will retry",
      ),
    onListenError: (error) =>
      log.warn(
        { event: "deployments.not-woken", error },
        "could not listen for changes of deployments; reading them at intervals only",
      ),
  });
  return { ...refresh, cache, refused: () => refused, isRead: () => lastReadMs !== undefined };
}
