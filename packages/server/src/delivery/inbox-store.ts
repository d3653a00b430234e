import * as z from "zod";
import { type Condition, SKIPPED } from "../store/call.ts";
import type { HotStore } from "../store/hot-store.ts";
import { defineScript } from "../store/script.ts";
import { deliveryKeys, onlyOnRedis } from "./delivery-keys.ts";
import { DOORBELL_BYTES_MAX } from "./doorbell.ts";
import type { BuryReason, InboxEntry } from "./message-policy.ts";

/** An inbox as read by one process: the instance it belongs to, and the name this process reads under. */
export interface InboxView {
  instanceId: string;
  group: string;
  consumer: string;
}

const sendScript = defineScript({
  file: new URL("./lua/send-message.lua", import.meta.url),
  keys: ["inbox"],
  args: z.object({ message: z.string(), length_max: z.int().positive() }),
  reply: z.union([
    z.tuple([z.literal("sent"), z.string()]),
    z.tuple([z.literal("full"), z.int()]),
    z.tuple([z.literal("closed")]),
  ]),
}).inMemory(onlyOnRedis);

const takeScript = defineScript({
  file: new URL("./lua/take-unread.lua", import.meta.url),
  keys: ["inbox"],
  args: z.object({
    group: z.string(),
    consumer: z.string(),
    count: z.int().positive(),
    bytes_max: z.int().positive(),
  }),
  reply: z.union([
    z.tuple([z.literal("taken"), z.int()], z.string()),
    z.tuple([z.literal("absent")]),
  ]),
}).inMemory(onlyOnRedis);

const reclaimScript = defineScript({
  file: new URL("./lua/reclaim-pending.lua", import.meta.url),
  keys: ["inbox"],
  args: z.object({
    group: z.string(),
    consumer: z.string(),
    idle_min_ms: z.int().min(0),
    cursor: z.string(),
    count: z.int().positive(),
    bytes_max: z.int().positive(),
  }),
  reply: z.union([
    z.tuple([z.literal("reclaimed"), z.string(), z.int()], z.union([z.string(), z.int()])),
    z.tuple([z.literal("absent")]),
  ]),
}).inMemory(onlyOnRedis);

const countScript = defineScript({
  file: new URL("./lua/count-delivery.lua", import.meta.url),
  keys: ["inbox"],
  args: z.object({ group: z.string(), consumer: z.string(), id: z.string() }),
  reply: z.tuple([z.enum(["counted", "absent"])]),
}).inMemory(onlyOnRedis);

const acknowledgeScript = defineScript({
  file: new URL("./lua/acknowledge-message.lua", import.meta.url),
  keys: ["inbox"],
  args: z.object({ group: z.string(), id: z.string() }),
  reply: z.tuple([z.enum(["acknowledged", "absent"])]),
}).inMemory(onlyOnRedis);

const buryScript = defineScript({
  file: new URL("./lua/bury-message.lua", import.meta.url),
  keys: ["inbox", "dlq"],
  args: z.object({
    group: z.string(),
    id: z.string(),
    reason: z.string(),
    keep: z.boolean(),
    length_max: z.int().positive(),
  }),
  reply: z.union([
    z.tuple([z.literal("buried"), z.string(), z.int()]),
    z.tuple([z.literal("absent")]),
  ]),
}).inMemory(onlyOnRedis);

const timeScript = defineScript({
  file: new URL("./lua/read-time.lua", import.meta.url),
  keys: ["inbox"],
  args: z.object({}),
  reply: z.tuple([z.literal("time"), z.int()]),
}).inMemory(onlyOnRedis);

const backlogScript = defineScript({
  file: new URL("./lua/read-backlog.lua", import.meta.url),
  keys: ["inbox", "dlq"],
  args: z.object({}),
  reply: z.tuple([z.literal("backlog"), z.int(), z.int()]),
}).inMemory(onlyOnRedis);

export type Accepted =
  | { outcome: "sent"; id: string }
  | { outcome: "full"; length: number }
  | { outcome: "closed" };

/** `conditions`: the message is sent only if they hold. */
export async function sendMessage(
  hot: HotStore,
  { instanceId, text, lengthMax }: { instanceId: string; text: string; lengthMax: number },
  conditions: readonly Condition[] = [],
): Promise<Accepted | { outcome: "skipped" }> {
  const inbox = deliveryKeys.inbox(hot.prefix, instanceId);
  const args = { message: text, length_max: lengthMax };
  const reply = await hot.startIf({ all: conditions }, sendScript, { inbox }, args).reply;
  if (reply === SKIPPED) return { outcome: "skipped" };
  switch (reply[0]) {
    case "sent":
      return { outcome: "sent", id: reply[1] };
    case "full":
      return { outcome: "full", length: reply[1] };
    case "closed":
      return { outcome: "closed" };
  }
}

/** Messages with the store's time of the read, which their deadlines are compared with. */
export interface Batch {
  entries: InboxEntry[];
  nowMs: number;
}

const NOTHING: Batch = { entries: [], nowMs: 0 };

export async function takeUnread(
  hot: HotStore,
  { instanceId, group, consumer }: InboxView,
  countMax: number,
): Promise<Batch> {
  const reply = await hot.run(
    takeScript,
    { inbox: deliveryKeys.inbox(hot.prefix, instanceId) },
    { group, consumer, count: countMax, bytes_max: DOORBELL_BYTES_MAX + 1 },
  );
  if (reply[0] === "absent") return NOTHING;
  const [, nowMs, ...rest] = reply;
  const entries = inGroups(rest, 2).map(
    ([id, text]) => ({ id, text, deliveries: 0 }) as InboxEntry,
  );
  return { entries, nowMs };
}

/** The cursor at which a scan of the pending messages starts, and the one it returns at its end. */
export const SCAN_START = "0-0";

export async function reclaimPending(
  hot: HotStore,
  { instanceId, group, consumer }: InboxView,
  { cursor, idleMinMs, countMax }: { cursor: string; idleMinMs: number; countMax: number },
): Promise<Batch & { cursor: string }> {
  const reply = await hot.run(
    reclaimScript,
    { inbox: deliveryKeys.inbox(hot.prefix, instanceId) },
    {
      group,
      consumer,
      cursor,
      idle_min_ms: idleMinMs,
      count: countMax,
      bytes_max: DOORBELL_BYTES_MAX + 1,
    },
  );
  if (reply[0] === "absent") return { ...NOTHING, cursor: SCAN_START };
  const [, next, nowMs, ...rest] = reply;
  const entries = inGroups(rest, 3).map(
    ([id, deliveries, text]) => ({ id, deliveries, text }) as InboxEntry,
  );
  return { entries, nowMs, cursor: next };
}

/** `false`: another instance has acknowledged it meanwhile. */
export async function countDelivery(
  hot: HotStore,
  { instanceId, group, consumer }: InboxView,
  id: string,
): Promise<boolean> {
  const inbox = deliveryKeys.inbox(hot.prefix, instanceId);
  const [outcome] = await hot.run(countScript, { inbox }, { group, consumer, id });
  return outcome === "counted";
}

/** `false`: another instance has acknowledged it already. */
export async function acknowledge(
  hot: HotStore,
  { instanceId, group }: InboxView,
  id: string,
): Promise<boolean> {
  const inbox = deliveryKeys.inbox(hot.prefix, instanceId);
  const [outcome] = await hot.run(acknowledgeScript, { inbox }, { group, id });
  return outcome === "acknowledged";
}

export type Burial =
  | { outcome: "buried"; letterId: string; dropped: number }
  | { outcome: "absent" };

export async function bury(
  hot: HotStore,
  { instanceId, group }: InboxView,
  letter: { id: string; reason: BuryReason; keep: boolean; lengthMax: number },
): Promise<Burial> {
  const { id, reason, keep, lengthMax } = letter;
  const keys = {
    inbox: deliveryKeys.inbox(hot.prefix, instanceId),
    dlq: deliveryKeys.dlq(hot.prefix, instanceId),
  };
  const reply = await hot.run(buryScript, keys, { group, id, reason, keep, length_max: lengthMax });
  if (reply[0] === "absent") return { outcome: "absent" };
  return { outcome: "buried", letterId: reply[1], dropped: reply[2] };
}

export async function readTime(hot: HotStore, instanceId: string): Promise<number> {
  const inbox = deliveryKeys.inbox(hot.prefix, instanceId);
  return (await hot.run(timeScript, { inbox }, {}))[1];
}

/** The messages and dead letters of an instance. */
export interface Backlog {
  messages: number;
  letters: number;
}

export async function readBacklog(hot: HotStore, instanceId: string): Promise<Backlog> {
  const keys = {
    inbox: deliveryKeys.inbox(hot.prefix, instanceId),
    dlq: deliveryKeys.dlq(hot.prefix, instanceId),
  };
  const [, messages, letters] = await hot.run(backlogScript, keys, {});
  return { messages, letters };
}

function inGroups<T>(values: readonly T[], size: number): T[][] {
  const count = values.length / size;
  return Array.from({ length: count }, (_, at) => values.slice(at * size, (at + 1) * size));
}
