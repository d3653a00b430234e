import type { Log } from "../kernel/log.ts";
import type { HotStore } from "../store/hot-store.ts";
import type { DeliveryMetrics } from "../telemetry.ts";
import { retireInbox } from "./inbox-lifecycle.ts";
import { isPresent, type RegisteredInbox } from "./inbox-registry-store.ts";
import type { InboxScan } from "./inbox-scan.ts";
import { type InboxView, readBacklog } from "./inbox-store.ts";
import { expireLetters } from "./letter-store.ts";

export interface AdoptionOptions {
  hot: HotStore;
  log: Log;
  telemetry: DeliveryMetrics;
  instanceId: string;
  group: string;
  scan: InboxScan;
}

/**
 * Processes the inboxes of dead instances once. An instance has a new id at every start, so it never reads the inbox of
 * its predecessor. Every live instance does this; Redis gives each message to one of them, as to readers of one group.
 *
 * An instance may only have been paused. It reads on when it continues; a message that both read takes effect twice,
 * never zero times.
 */
export async function adoptInboxes(
  options: AdoptionOptions,
  listed: readonly RegisteredInbox[],
  signal: AbortSignal,
): Promise<void> {
  const { hot, instanceId, log } = options;
  for (const inbox of listed) {
    if (signal.aborted) return;
    if (inbox.instanceId === instanceId || (await isPresent(hot, inbox.instanceId))) continue;
    try {
      await adopt(options, inbox, signal);
    } catch (error) {
      // An inbox on a part of a Cluster that is down does not delay the others.
      log.warn(
        { event: "inbox.not-adopted", inbox: inbox.instanceId, error },
        "could not process the inbox of a dead instance; the next scan will retry",
      );
    }
  }
}

async function adopt(
  { hot, log, telemetry, instanceId, group, scan }: AdoptionOptions,
  listed: RegisteredInbox,
  signal: AbortSignal,
): Promise<void> {
  const inbox: InboxView = { instanceId: listed.instanceId, group, consumer: instanceId };
  const { messages, letters } = await readBacklog(hot, inbox.instanceId);
  if (messages > 0) {
    log.info(
      { event: "inbox.adopted", inbox: inbox.instanceId, messages },
      "processing the inbox of a dead instance",
    );
    const goOn = async () => !signal.aborted && !(await isPresent(hot, inbox.instanceId));
    await scan.pending(inbox, goOn);
    await scan.unread(inbox, goOn);
  }
  if (letters > 0)
    telemetry.deliveries.inc({ event: "dropped" }, await expireLetters(hot, inbox.instanceId));
  // Messages in flight keep the inbox open; the next scan finds it empty.
  if (await retireInbox(hot, listed))
    log.info(
      { event: "inbox.closed", inbox: inbox.instanceId },
      "closed the empty inbox of a dead instance",
    );
}
