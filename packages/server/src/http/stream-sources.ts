import { DEFAULT_TENANT, type NodeView } from "@tenure/protocol";
import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import { every, type Service } from "../kernel/service.ts";
import type { PostgresStore } from "../store/db.ts";
import { eventsAfter, newestEventId } from "../store/event-store.ts";
import { renderEvent } from "./routes/events.ts";
import type { Change } from "./routes/stream.ts";

/**
 * Says which nodes differ from the last time it was asked. A node-unit that is not listed any more is away, not removed: one
 * that left before the members were looked at is never listed as such. A worker that is not listed is gone.
 */
export function createNodeDiff(): (nodes: NodeView[]) => Change[] {
  let known = new Map<string, { json: string; node: NodeView }>();
  return (nodes) => {
    // Presence is renewed all the time; a console that redraws for it would never be still.
    const now = new Map(
      nodes.map((node) => [
        node.node_id,
        { json: JSON.stringify({ ...node, presence_expires_at: null }), node },
      ]),
    );
    const changed = nodes.filter(
      (node) => known.get(node.node_id)?.json !== now.get(node.node_id)?.json,
    );
    const missing = [...known.values()]
      .map(({ node }) => node)
      .filter(({ node_id, online }) => online && !now.has(node_id));
    known = now;
    return [
      ...[...changed, ...missing.filter(isUnit).map(away)].map(
        (item): Change => ({
          ...{ topic: "nodes", op: "changed", id: item.node_id },
          ...{ tenants: item.tenants ?? [DEFAULT_TENANT], item },
        }),
      ),
      ...missing
        .filter((node) => !isUnit(node))
        .map(
          ({ node_id, tenants = [DEFAULT_TENANT] }): Change => ({
            ...{ topic: "nodes", op: "removed", id: node_id, tenants },
          }),
        ),
    ];
  };
}

const isUnit = ({ node_unit }: NodeView): boolean => node_unit;
const away = (node: NodeView): NodeView => ({ ...node, online: false, instance_id: null });

const FALLBACK_INTERVAL_MS = 5_000;
/** A smaller id may commit after a larger one: how far back a look goes to find it. */
const OVERLAP_IDS = 200;

/** Follows the event table, whichever instance wrote to it, and publishes what is new. */
export function createEventTail({
  db,
  publish,
  clock,
  log,
}: {
  db: PostgresStore;
  publish: (change: Change) => void;
  clock: Clock;
  log: Log;
}): Service {
  let lastId: number | undefined;
  let told = new Set<number>();

  async function look(): Promise<void> {
    if (lastId === undefined) {
      lastId = await newestEventId(db);
      told = new Set((await eventsAfter(db, lastId - OVERLAP_IDS)).map(({ id }) => id));
    }
    const rows = await eventsAfter(db, lastId - OVERLAP_IDS);
    for (const row of rows.filter(({ id }) => !told.has(id))) {
      const { id, tenants } = row;
      publish({
        ...{ topic: "events", op: "changed", id: String(id), tenants, item: renderEvent(row) },
      });
    }
    told = new Set(rows.map(({ id }) => id));
    lastId = Math.max(lastId, ...told);
  }

  const tail = every(FALLBACK_INTERVAL_MS, look, {
    clock,
    onError: (error) => log.warn({ event: "events.not-followed", error }, "trying again"),
  });
  return {
    start() {
      db.listen("tenure_event", () => tail.wake()).catch((error) =>
        log.warn({ event: "events.not-woken", error }, "following events at intervals only"),
      );
      tail.start();
    },
    stop: () => tail.stop(),
  };
}
