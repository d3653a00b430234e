import { failpoint } from "#failpoint";
import type { Log } from "../kernel/log.ts";
import type { HotStore } from "../store/hot-store.ts";
import type { Delivery, DeliveryOptions, DeliverySettings, Meter, Received } from "./contract.ts";
import { type Doorbell, HOPS_MAX } from "./doorbell.ts";
import { acknowledge, bury, countDelivery, type InboxView } from "./inbox-store.ts";
import { type BuryReason, type InboxEntry, judge } from "./message-policy.ts";

export interface SettleContext {
  hot: HotStore;
  instanceId: string;
  settings: DeliverySettings;
  log: Log;
  meter: Meter;
  receive: DeliveryOptions["receive"];
  route: DeliveryOptions["route"];
  send: Delivery["send"];
}

/** One message in an inbox: our own, or that of an instance that is gone. */
export interface Case {
  inbox: InboxView;
  entry: InboxEntry;
  /** The store's time of the reading; not there yet when the read itself could not tell it. */
  nowMs: number | Promise<number>;
}

/** What becomes of it. `left` stays pending and is looked at again in the next round. */
type Fate = "done" | "superseded" | "forwarded" | "left" | { bury: BuryReason };

/**
 * Brings one message to its end, or leaves it for the next round. Never rejects.
 *
 * **A message leaves an inbox only after its effect, after it is in another inbox, or into the dead letters.**
 * Wherever this breaks off, the message is still there. The worst is that it takes effect twice, which the
 * job's record makes harmless.
 */
export async function settle(context: SettleContext, matter: Case): Promise<void> {
  try {
    await conclude(context, matter, await decide(context, matter));
  } catch (error) {
    context.meter.count("left");
    context.log.warn(
      { event: "message.not-settled", inbox: matter.inbox.instanceId, id: matter.entry.id, error },
      "a message stays in its inbox and will be tried again",
    );
  }
}

async function decide(context: SettleContext, matter: Case): Promise<Fate> {
  const { instanceId, settings } = context;
  const { inbox, entry } = matter;
  const limits = { nowMs: await matter.nowMs, deliveriesMax: settings.dlq_max_deliveries };
  const verdict = judge(entry, limits);
  if (verdict.outcome === "bury") return { bury: verdict.reason };
  const { message } = verdict;
  if (inbox.instanceId !== instanceId) return pass(context, matter, message);
  const received = await deliver(context, matter, message);
  return received === "elsewhere" ? pass(context, matter, message) : fateOf(received);
}

/** Bring it to where its target is connected now. */
async function pass(context: SettleContext, matter: Case, message: Doorbell): Promise<Fate> {
  const { instanceId, route, send } = context;
  const destination = await route(message);
  if (destination === "gone") return "superseded";
  // Owned still by the one who cannot take it: wait until the target has connected to somebody else.
  if (destination === "wait" || destination.to === matter.inbox.instanceId) return "left";
  if (destination.to === instanceId) return fateOf(await deliver(context, matter, message));
  if (message.hops >= HOPS_MAX) return { bury: "hops" };
  const sent = await send(destination.to, { ...message, hops: message.hops + 1 });
  return sent.outcome === "sent" ? "forwarded" : "left";
}

/** Hand it to this instance. The first delivery was counted by the read itself. */
async function deliver(
  { hot, receive }: SettleContext,
  { inbox, entry }: Case,
  message: Doorbell,
): Promise<Received> {
  if (entry.deliveries > 0 && !(await countDelivery(hot, inbox, entry.id))) return "superseded";
  return receive(message);
}

const fateOf = (received: Received): Fate =>
  received === "done" || received === "superseded" ? received : "left";

async function conclude(context: SettleContext, matter: Case, fate: Fate): Promise<void> {
  const { hot, meter } = context;
  if (fate === "left") return meter.count("left");
  if (typeof fate === "object") return toDeadLetters(context, matter, fate.bury);
  await failpoint("delivery.before-acknowledge");
  // Two may have settled it, a paused instance and whoever adopted its inbox: it is counted once.
  if (await acknowledge(hot, matter.inbox, matter.entry.id)) meter.count(fate);
}

async function toDeadLetters(
  { hot, settings, meter, log }: SettleContext,
  { inbox, entry: { id } }: Case,
  reason: BuryReason,
): Promise<void> {
  const { dlq_enabled: keep, dlq_maxlen: lengthMax } = settings;
  const burial = await bury(hot, inbox, { id, reason, keep, lengthMax });
  if (burial.outcome === "absent") return;
  meter.bury(reason);
  if (burial.dropped > 0) meter.count("dropped", burial.dropped);
  const { letterId, dropped } = burial;
  log.warn(
    { event: "message.buried", inbox: inbox.instanceId, id, reason, letterId, dropped },
    "a message became a dead letter",
  );
}
