import { DEFAULT_TENANT, type NodeView } from "@tenure/protocol";
import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import { every, type Service } from "../kernel/service.ts";
import { type EventSource, renderEvent } from "./routes/events.ts";
import type { Change } from "./routes/stream.ts";

/**
 * Returns a function that compares the nodes with those of the last call. A node-unit that is no longer listed is away, not
 * removed: one that left between two reads of the members is never listed as offline. A worker that is not listed is gone.
 */
export function createNodeDiff(): (nodes: NodeView[]) => Change[] {
  let known = new Map<string, { json: string; node: NodeView }>();
  return (nodes) => {
    // Presence is renewed every few seconds; as a change it would redraw every console each time.
    const now = new Map(
      nodes.map((node) => {
        const former = known.get(node.node_id);
        // Serialized only when it is another object: membership keeps the view of a node that has not changed.
        if (former?.node === node) return [node.node_id, former];
        return [
          node.node_id,
          { json: JSON.stringify({ ...node, presence_expires_at: null }), node },
        ];
      }),
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

const POLL_INTERVAL_MS = 5_000;
/** A smaller id may commit after a larger one: each poll reads this many ids back. */
const OVERLAP_IDS = 200;
/** After a poll with more than these the next one rests: each event that is stored wakes it, and a poll reads the overlap. */
const FEW = 3;
const REST_MS = 100;

/** Follows the event table, into which all instances write, and publishes each new event once. */
export function createEventTail({
  events,
  publish,
  clock,
  log,
}: {
  events: Pick<EventSource, "newestId" | "after" | "onNew">;
  publish: (change: Change) => void;
  clock: Clock;
  log: Log;
}): Service {
  let lastId: number | undefined;
  let published = new Set<number>();

  async function poll(signal: AbortSignal): Promise<void> {
    if (lastId === undefined) {
      lastId = await events.newestId();
      published = new Set((await events.after(lastId - OVERLAP_IDS)).map(({ id }) => id));
    }
    const rows = await events.after(lastId - OVERLAP_IDS);
    const fresh = rows.filter(({ id }) => !published.has(id));
    for (const row of fresh) {
      const { id, tenants } = row;
      publish({
        ...{ topic: "events", op: "changed", id: String(id), tenants, item: renderEvent(row) },
      });
    }
    published = new Set(rows.map(({ id }) => id));
    lastId = Math.max(lastId, ...published);
    if (fresh.length > FEW) await clock.sleep(REST_MS, signal);
  }

  const tail = every(POLL_INTERVAL_MS, poll, {
    clock,
    onError: (error) =>
      log.warn({ event: "events.not-followed", error }, "could not read new events; will retry"),
  });
  return {
    start() {
      events
        .onNew(tail.wake)
        .catch((error) =>
          log.warn(
            { event: "events.not-woken", error },
            "could not listen for new events; polling every 5 s",
          ),
        );
      tail.start();
    },
    stop: tail.stop,
  };
}
