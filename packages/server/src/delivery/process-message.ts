import { failpoint } from "#failpoint";
import type { Log } from "../kernel/log.ts";
import type { HotStore } from "../store/hot-store.ts";
import type { DeliveryMetrics } from "../telemetry.ts";
import type { Delivery, DeliveryOptions, DeliverySettings, Received } from "./contract.ts";
import { type Doorbell, HOPS_MAX } from "./doorbell.ts";
import { acknowledge, bury, countDelivery, type InboxView } from "./inbox-store.ts";
import { type BuryReason, type Checked, checkMessage, type InboxEntry } from "./message-policy.ts";
import type { StoreTime } from "./store-time.ts";

export interface ProcessContext {
  hot: HotStore;
  instanceId: string;
  settings: DeliverySettings;
  log: Log;
  telemetry: DeliveryMetrics;
  receive: DeliveryOptions["receive"];
  route: DeliveryOptions["route"];
  send: Delivery["send"];
}

/** One message in an inbox: this instance's own, or that of a dead instance. */
export interface InboxMessage {
  inbox: InboxView;
  entry: InboxEntry;
  /** The store's time of the read, or where to get it when the read itself does not return it. */
  nowMs: number | StoreTime;
}

/** `left` stays pending until the next scan. */
type Outcome = "done" | "superseded" | "forwarded" | "left" | { bury: BuryReason };

/**
 * Processes one message, or leaves it for the next scan. Never rejects.
 *
 * **A message leaves an inbox only after its effect, after it is in another inbox, or into the dead letters.**
 * Wherever this stops, the message is still in the inbox. At worst it takes effect twice, which the job's record makes
 * harmless.
 */
export async function processMessage(
  context: ProcessContext,
  message: InboxMessage,
): Promise<void> {
  try {
    await finish(context, message, await apply(context, message));
  } catch (error) {
    context.telemetry.deliveries.inc({ event: "left" });
    const { inbox, entry } = message;
    context.log.warn(
      { event: "message.not-settled", inbox: inbox.instanceId, id: entry.id, error },
      "could not process a message; it stays in its inbox and will be retried",
    );
  }
}

async function apply(
  context: ProcessContext,
  { inbox, entry, nowMs }: InboxMessage,
): Promise<Outcome> {
  const { instanceId, settings } = context;
  const checked = await check(entry, nowMs, settings.dlq_max_deliveries);
  if (checked.outcome === "bury") return { bury: checked.reason };
  const { message } = checked;
  if (inbox.instanceId !== instanceId) return forward(context, { inbox, entry }, message);
  const received = await deliver(context, { inbox, entry }, message);
  return received === "elsewhere"
    ? forward(context, { inbox, entry }, message)
    : outcomeOf(received);
}

/** Most messages are far from their deadline: the store is asked for its time only in doubt. */
async function check(
  entry: InboxEntry,
  nowMs: number | StoreTime,
  deliveriesMax: number,
): Promise<Checked> {
  if (typeof nowMs === "number") return checkMessage(entry, { nowMs, deliveriesMax });
  const estimateMs = nowMs.estimateMs();
  if (estimateMs !== undefined) {
    const checked = checkMessage(entry, { nowMs: estimateMs + DOUBT_MS, deliveriesMax });
    if (checked.outcome !== "bury" || checked.reason !== "deadline") return checked;
  }
  return checkMessage(entry, { nowMs: await nowMs.read(), deliveriesMax });
}

/** More than an estimate of the store's time is wrong. */
const DOUBT_MS = 1_000;

type Position = Pick<InboxMessage, "inbox" | "entry">;

/** Sends the message to the instance its target is connected to. */
async function forward(
  context: ProcessContext,
  position: Position,
  message: Doorbell,
): Promise<Outcome> {
  const { instanceId, route, send } = context;
  const destination = await route(message);
  if (destination === "gone") return "superseded";
  // The recorded owner is the instance that could not apply it: wait until the target connects to another one.
  if (destination === "wait" || destination.to === position.inbox.instanceId) return "left";
  if (destination.to === instanceId) return outcomeOf(await deliver(context, position, message));
  if (message.hops >= HOPS_MAX) return { bury: "hops" };
  const sent = await send(destination.to, { ...message, hops: message.hops + 1 });
  return sent.outcome === "sent" ? "forwarded" : "left";
}

/** Applies the message on this instance. The read itself counted the first delivery. */
async function deliver(
  { hot, receive }: ProcessContext,
  { inbox, entry }: Position,
  message: Doorbell,
): Promise<Received> {
  if (entry.deliveries > 0 && !(await countDelivery(hot, inbox, entry.id))) return "superseded";
  return receive(message);
}

const outcomeOf = (received: Received): Outcome =>
  received === "done" || received === "superseded" ? received : "left";

async function finish(
  context: ProcessContext,
  position: Position,
  outcome: Outcome,
): Promise<void> {
  const { hot, telemetry } = context;
  if (outcome === "left") return telemetry.deliveries.inc({ event: "left" });
  if (typeof outcome === "object") return moveToDeadLetters(context, position, outcome.bury);
  await failpoint("delivery.before-acknowledge");
  // A paused instance and the one that adopted its inbox may both have processed it: count it once.
  if (await acknowledge(hot, position.inbox, position.entry.id))
    telemetry.deliveries.inc({ event: outcome });
}

async function moveToDeadLetters(
  { hot, settings, telemetry, log }: ProcessContext,
  { inbox, entry: { id } }: Position,
  reason: BuryReason,
): Promise<void> {
  const { dlq_enabled: keep, dlq_maxlen: lengthMax } = settings;
  const burial = await bury(hot, inbox, { id, reason, keep, lengthMax });
  if (burial.outcome === "absent") return;
  telemetry.dlqMoved.inc({ reason });
  const { letterId, dropped } = burial;
  if (dropped > 0) telemetry.deliveries.inc({ event: "dropped" }, dropped);
  log.warn(
    { event: "message.buried", inbox: inbox.instanceId, id, reason, letterId, dropped },
    "a message became a dead letter",
  );
}
