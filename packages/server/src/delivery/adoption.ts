import type { Log } from "../kernel/log.ts";
import type { HotStore } from "../store/hot-store.ts";
import type { Meter } from "./contract.ts";
import { retire } from "./inbox-lifecycle.ts";
import { isPresent, type Listed } from "./inbox-registry-store.ts";
import type { Rounds } from "./inbox-scan.ts";
import { type InboxView, readBacklog } from "./inbox-store.ts";
import { expireLetters } from "./letter-store.ts";

export interface AdoptionOptions {
  hot: HotStore;
  log: Log;
  meter: Pick<Meter, "count">;
  instanceId: string;
  group: string;
  rounds: Rounds;
}

/**
 * One look at the inboxes of instances that are gone: with a new id at every start nobody else would ever read
 * them. Any live instance does it; a message goes to one of them, as with any readers of one group.
 *
 * An instance may only have been paused. It takes its share again when it comes back, and what both took has
 * its effect twice, never none.
 */
export async function adoptInboxes(
  options: AdoptionOptions,
  everyone: readonly Listed[],
  signal: AbortSignal,
): Promise<void> {
  const { hot, instanceId, log } = options;
  for (const listed of everyone) {
    if (signal.aborted) return;
    if (listed.instanceId === instanceId || (await isPresent(hot, listed.instanceId))) continue;
    try {
      await adopt(options, listed, signal);
    } catch (error) {
      // One inbox on a part of a cluster that is down must not keep the others waiting.
      log.warn(
        { event: "inbox.not-adopted", inbox: listed.instanceId, error },
        "will try again at the next scan",
      );
    }
  }
}

async function adopt(
  { hot, log, meter, instanceId, group, rounds }: AdoptionOptions,
  listed: Listed,
  signal: AbortSignal,
): Promise<void> {
  const inbox: InboxView = { instanceId: listed.instanceId, group, consumer: instanceId };
  const { messages, letters } = await readBacklog(hot, inbox.instanceId);
  if (messages > 0) {
    log.info(
      { event: "inbox.adopted", inbox: inbox.instanceId, messages },
      "going through the inbox of an instance that is gone",
    );
    const goOn = async () => !signal.aborted && !(await isPresent(hot, inbox.instanceId));
    await rounds.pending(inbox, goOn);
    await rounds.unread(inbox, goOn);
  }
  if (letters > 0) meter.count("dropped", await expireLetters(hot, inbox.instanceId));
  // What is in flight now keeps it; then the next scan finds it empty.
  if (await retire(hot, listed))
    log.info({ event: "inbox.closed", inbox: inbox.instanceId }, "nothing is left of an instance");
}
