import type { InFlight } from "./in-flight.ts";
import {
  type Batch,
  type InboxView,
  ROUND_START,
  reclaimPending,
  takeUnread,
} from "./inbox-store.ts";
import { type Case, type SettleContext, settle } from "./process-message.ts";

export interface Rounds {
  /** Settles what is given, each at most once at a time. Resolves when the last has begun. */
  settleAll(inbox: InboxView, batch: Pick<Case, "nowMs"> & Pick<Batch, "entries">): Promise<void>;
  /** One round over what was read from an inbox and is not settled. */
  pending(inbox: InboxView, goOn: () => Promise<boolean>): Promise<void>;
  /** Everything in an inbox that nobody has read. */
  unread(inbox: InboxView, goOn: () => Promise<boolean>): Promise<void>;
}

export interface RoundsOptions {
  context: SettleContext;
  inFlight: InFlight;
  /** A message touched more recently is in somebody's hands: another reader's, or our own a moment ago. */
  idleMinMs: number;
}

/** Walks through inboxes, step by step, with as much in flight as is allowed. */
export function createRounds({ context, inFlight, idleMinMs }: RoundsOptions): Rounds {
  const { hot, settings } = context;
  // Kept when a round breaks off: the next goes on behind it, so that what comes late in the order has its turn.
  const cursors = new Map<string, string>();

  const settleAll: Rounds["settleAll"] = async (inbox, { entries, nowMs }) => {
    for (const entry of entries) {
      const key = `${inbox.instanceId}/${entry.id}`;
      await inFlight.room();
      if (inFlight.has(key)) continue;
      inFlight.run(key, () => settle(context, { inbox, entry, nowMs }));
    }
  };

  return {
    settleAll,
    async pending(inbox, goOn) {
      const { instanceId } = inbox;
      while (await goOn()) {
        await inFlight.room();
        const step = await reclaimPending(hot, inbox, {
          cursor: cursors.get(instanceId) ?? ROUND_START,
          idleMinMs,
          countMax: settings.dlq_scan_count,
        });
        cursors.set(instanceId, step.cursor);
        await settleAll(inbox, step);
        if (step.cursor === ROUND_START) break;
      }
      if (cursors.get(instanceId) === ROUND_START) cursors.delete(instanceId);
    },
    async unread(inbox, goOn) {
      while (await goOn()) {
        const batch = await takeUnread(hot, inbox, await inFlight.room());
        if (batch.entries.length === 0) return;
        await settleAll(inbox, batch);
      }
    },
  };
}
