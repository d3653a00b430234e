import type { InFlight } from "./in-flight.ts";
import {
  type Batch,
  type InboxView,
  reclaimPending,
  SCAN_START,
  takeUnread,
} from "./inbox-store.ts";
import { type InboxMessage, type ProcessContext, processMessage } from "./process-message.ts";

export interface InboxScan {
  /** Processes the given entries, each at most once at a time. Resolves when the last one is in flight. */
  processAll(
    inbox: InboxView,
    batch: Pick<InboxMessage, "nowMs"> & Pick<Batch, "entries">,
  ): Promise<void>;
  /** Retries every message that was read from an inbox and not acknowledged, once. */
  pending(inbox: InboxView, goOn: () => Promise<boolean>): Promise<void>;
  /** Processes every unread message of an inbox. */
  unread(inbox: InboxView, goOn: () => Promise<boolean>): Promise<void>;
}

export interface InboxScanOptions {
  context: ProcessContext;
  inFlight: InFlight;
  /** A message claimed more recently is being processed, by another reader or by this one. */
  idleMinMs: number;
}

/** Scans inboxes in batches, with a bounded number of messages in flight. */
export function createInboxScan({ context, inFlight, idleMinMs }: InboxScanOptions): InboxScan {
  const { hot, settings } = context;
  // Kept when a scan stops early: the next one continues there, so that the last messages are not starved.
  const cursors = new Map<string, string>();

  const processAll: InboxScan["processAll"] = async (inbox, { entries, nowMs }) => {
    for (const entry of entries) {
      const key = `${inbox.instanceId}/${entry.id}`;
      await inFlight.room();
      if (inFlight.has(key)) continue;
      inFlight.run(key, () => processMessage(context, { inbox, entry, nowMs }));
    }
  };

  return {
    processAll,
    async pending(inbox, goOn) {
      const { instanceId } = inbox;
      while (await goOn()) {
        await inFlight.room();
        const batch = await reclaimPending(hot, inbox, {
          cursor: cursors.get(instanceId) ?? SCAN_START,
          idleMinMs,
          countMax: settings.dlq_scan_count,
        });
        cursors.set(instanceId, batch.cursor);
        await processAll(inbox, batch);
        if (batch.cursor === SCAN_START) break;
      }
      if (cursors.get(instanceId) === SCAN_START) cursors.delete(instanceId);
    },
    async unread(inbox, goOn) {
      while (await goOn()) {
        const batch = await takeUnread(hot, inbox, await inFlight.room());
        if (batch.entries.length === 0) return;
        await processAll(inbox, batch);
      }
    },
  };
}
