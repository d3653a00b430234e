import { type Condition, SKIPPED } from "../../store/call.ts";
import type { HotStore } from "../../store/hot-store.ts";
import type { MemorySpace } from "../../store/memory-space.ts";
import { defineScript } from "../../store/script.ts";
import type { JobAttempt } from "../job.ts";
import { inBatches, split } from "./batches.ts";
import { jobKeys } from "./keys.ts";
import { unchecked, uncheckedReply } from "./unchecked.ts";

/** The key of a node that never returns expires after this; by then every slot in it has expired. */
const KEEP_AFTER_TTL_MS = 60_000;

export type SlotAnswer = "reserved" | "full" | "unavailable";
interface FillArgs {
  capacity: number;
  ttl_ms: number;
  keep_ms: number;
  slots: string[];
}

const reserveScript = defineScript<
  "reserved" | "unavailable",
  Record<"capacity" | "ttl_ms" | "keep_ms" | "slots" | "services", string>,
  readonly ["answered", number, ...SlotAnswer[]]
>({
  file: new URL("./lua/reserve-slots.lua", import.meta.url),
  keys: ["reserved", "unavailable"],
  texts: ["capacity", "ttl_ms", "keep_ms", "slots", "services"],
  args: unchecked(),
  reply: uncheckedReply(),
}).inMemory((space, keys, args) => {
  const slots = liveSlots(space, keys.reserved);
  const marks = space.scores(keys.unavailable);
  const services = split(args.services);
  const capacity = Number(args.capacity);
  const expiresAtMs = space.nowMs() + Number(args.ttl_ms);
  const answers = split(args.slots).map((slot, index): SlotAnswer => {
    const marked = (marks.get(services[index]!) ?? 0) > space.nowMs();
    if ((marked || slots.size >= capacity) && !slots.has(slot))
      return marked ? "unavailable" : "full";
    slots.set(slot, expiresAtMs);
    return "reserved";
  });
  space.expire(keys.reserved, Number(args.keep_ms));
  return ["answered", slots.size, ...answers];
});

const fillScript = defineScript<
  "reserved",
  FillArgs,
  readonly ["answered", number, ...("held" | "full")[]]
>({
  file: new URL("./lua/fill-slots.lua", import.meta.url),
  keys: ["reserved"],
  args: unchecked(),
  reply: uncheckedReply(),
}).inMemory((space, { reserved }, args) => {
  const slots = liveSlots(space, reserved);
  const answers = args.slots.map((slot) => {
    if (!slots.has(slot) && slots.size >= args.capacity) return "full";
    slots.set(slot, space.nowMs() + args.ttl_ms);
    return "held";
  });
  space.expire(reserved, args.keep_ms);
  return ["answered", slots.size, ...answers];
});

const renewScript = defineScript<
  "reserved",
  { ttl_ms: number; keep_ms: number; slots: string[] },
  readonly ["answered", ...("renewed" | "absent")[]]
>({
  file: new URL("./lua/renew-slots.lua", import.meta.url),
  keys: ["reserved"],
  args: unchecked(),
  reply: uncheckedReply(),
}).inMemory((space, { reserved }, args) => {
  const slots = liveSlots(space, reserved);
  const answers = args.slots.map((slot) => {
    if (!slots.has(slot)) return "absent";
    slots.set(slot, space.nowMs() + args.ttl_ms);
    return "renewed";
  });
  space.expire(reserved, args.keep_ms);
  return ["answered", ...answers];
});

const freeScript = defineScript<"reserved", { slots: string }, readonly ["freed", number]>({
  file: new URL("./lua/free-slots.lua", import.meta.url),
  keys: ["reserved"],
  texts: ["slots"],
  args: unchecked(),
  reply: uncheckedReply(),
}).inMemory((space, { reserved }, args) => {
  const slots = space.scores(reserved);
  return ["freed", split(args.slots).filter((slot) => slots.delete(slot)).length];
});

const countScript = defineScript<"reserved", object, readonly ["counted", number]>({
  file: new URL("./lua/count-slots.lua", import.meta.url),
  keys: ["reserved"],
  args: unchecked(),
  reply: uncheckedReply(),
}).inMemory((space, { reserved }) => ["counted", liveSlots(space, reserved).size]);

const findScript = defineScript<"reserved", { slot: string }, readonly ["held" | "absent"]>({
  file: new URL("./lua/find-slot.lua", import.meta.url),
  keys: ["reserved"],
  args: unchecked(),
  reply: uncheckedReply(),
}).inMemory((space, { reserved }, { slot }) => [
  liveSlots(space, reserved).has(slot) ? "held" : "absent",
]);

const listScript = defineScript<"reserved", object, readonly ["listed", ...(string | number)[]]>({
  file: new URL("./lua/list-slots.lua", import.meta.url),
  keys: ["reserved"],
  args: unchecked(),
  reply: uncheckedReply(),
}).inMemory((space, { reserved }) => {
  const slots = [...liveSlots(space, reserved)].sort((a, b) => a[1] - b[1]);
  return ["listed", ...slots.flatMap(([slot, atMs]) => [slot, atMs - space.nowMs()])];
});

export interface WantedSlot extends JobAttempt {
  service?: string | undefined;
  /** Called when the call is started, with the condition that this slot was reserved. */
  onStarted?: ((reserved: Condition) => void) | undefined;
}

/** A request for slots of one node. */
export interface Reservation {
  nodeId: string;
  capacity: number;
  /** Three heartbeats: after so long without one the slots expire. */
  ttlMs: number;
  wanted: readonly WantedSlot[];
}

export interface ReserveAnswer {
  /** One for each slot wanted. `unavailable`: the node has reported that it cannot serve this service. */
  answers: SlotAnswer[];
  /** Slots of the node in use now. */
  reserved: number;
}

/** An attempt that is answered `reserved` has the slot, also when it asks again; slots in use never exceed `capacity`. */
export async function reserveSlots(
  hot: HotStore,
  { nodeId, capacity, ttlMs, wanted }: Reservation,
): Promise<ReserveAnswer> {
  const keys = {
    reserved: jobKeys.reserved(hot.prefix, nodeId),
    unavailable: jobKeys.unavailable(hot.prefix, nodeId),
  };
  const call = hot.start(reserveScript, keys, {
    capacity: String(capacity),
    ttl_ms: String(ttlMs),
    keep_ms: String(ttlMs + KEEP_AFTER_TTL_MS),
    slots: wanted.map(slotName).join(" "),
    services: wanted.map(({ service }) => service ?? "-").join(" "),
  });
  for (const [index, { onStarted }] of wanted.entries())
    onStarted?.({ call, at: 2 + index, is: "reserved" });
  const [, reserved, ...answers] = await call.reply;
  return { answers, reserved };
}

/**
 * Gives the attempts that a registering node runs their slots back, before the node can be chosen. `full`: beyond the
 * capacity; the attempt lost its slot while the node was away.
 *
 * Read the records afterwards and free slots that are not current: a job that ends meanwhile is FINISHED before its slot is
 * removed, so either this read sees its end, or its end removes the slot.
 */
export async function fillSlots(
  hot: HotStore,
  { nodeId, capacity, ttlMs, wanted }: Reservation,
): Promise<Array<"held" | "full">> {
  const reserved = jobKeys.reserved(hot.prefix, nodeId);
  const args = { capacity, ...lives(ttlMs), slots: wanted.map(slotName) };
  const [, , ...answers] = await hot.run(fillScript, { reserved }, args);
  return answers;
}

/** Renews slots at a heartbeat. A slot that was freed meanwhile is `absent` and stays so. */
export async function renewSlots(
  hot: HotStore,
  { nodeId, ttlMs, slots }: { nodeId: string; ttlMs: number; slots: readonly JobAttempt[] },
): Promise<Array<"renewed" | "absent">> {
  if (slots.length === 0) return [];
  const reserved = jobKeys.reserved(hot.prefix, nodeId);
  const args = { ...lives(ttlMs), slots: slots.map(slotName) };
  const [, ...answers] = await hot.run(renewScript, { reserved }, args);
  return answers;
}

/** A slot to free. */
export interface FreedSlot extends JobAttempt {
  /** Frees the slot only if this holds. */
  onlyIf?: Condition | undefined;
  /** Called when the call is started, with the condition that it was run. */
  onStarted?: ((freed: Condition) => void) | undefined;
}

/** Returns how many of them were in use; `isSkipped`: no condition held. */
export async function freeSlots(
  hot: HotStore,
  nodeId: string,
  slots: readonly FreedSlot[],
): Promise<{ freed: number; isSkipped: boolean }> {
  const reserved = jobKeys.reserved(hot.prefix, nodeId);
  const calls = inBatches(slots).map((batch) => {
    const each = batch.map(({ onlyIf }) => onlyIf);
    const words = { of: "slots", each } as const;
    const args = { slots: batch.map(slotName).join(" ") };
    const call = each.some((condition) => condition)
      ? hot.startIf({ words }, freeScript, { reserved }, args)
      : hot.start(freeScript, { reserved }, args);
    for (const { onStarted } of batch) onStarted?.({ call, at: 0, is: "freed" });
    return call.reply;
  });
  const replies = (await Promise.all(calls)).filter((reply) => reply !== SKIPPED);
  const freed = replies.reduce((sum, reply) => sum + reply[1], 0);
  return { freed, isSkipped: replies.length === 0 };
}

export interface UsedSlot extends JobAttempt {
  /** Until the slot expires unless it is renewed. */
  expiresInMs: number;
}

/** The slots in use, in the order of their expiry. */
export async function listSlots(hot: HotStore, nodeId: string): Promise<UsedSlot[]> {
  const reserved = jobKeys.reserved(hot.prefix, nodeId);
  const [, ...pairs] = await hot.run(listScript, { reserved }, {});
  return pairs.flatMap((slot, index) =>
    typeof slot === "string" ? [{ ...parseSlot(slot), expiresInMs: Number(pairs[index + 1]) }] : [],
  );
}

export async function countSlots(hot: HotStore, nodeId: string): Promise<number> {
  const reserved = jobKeys.reserved(hot.prefix, nodeId);
  return (await hot.run(countScript, { reserved }, {}))[1];
}

/** Whether this node has the slot of this attempt: then its result counts although the record names no node. */
export async function hasSlot(
  hot: HotStore,
  nodeId: string,
  attempt: JobAttempt,
): Promise<boolean> {
  const reserved = jobKeys.reserved(hot.prefix, nodeId);
  const [answer] = await hot.run(findScript, { reserved }, { slot: slotName(attempt) });
  return answer === "held";
}

const slotName = ({ jobId, attemptId }: JobAttempt): string => `${jobId}:${attemptId}`;

function parseSlot(name: string): JobAttempt {
  const colon = name.lastIndexOf(":");
  return { jobId: name.slice(0, colon), attemptId: Number(name.slice(colon + 1)) };
}

const lives = (ttlMs: number) => ({ ttl_ms: ttlMs, keep_ms: ttlMs + KEEP_AFTER_TTL_MS });

/** The slots that have not expired. */
function liveSlots(space: MemorySpace, key: string): Map<string, number> {
  const slots = space.scores(key);
  const nowMs = space.nowMs();
  for (const [slot, expiresAtMs] of slots) if (expiresAtMs <= nowMs) slots.delete(slot);
  return slots;
}
