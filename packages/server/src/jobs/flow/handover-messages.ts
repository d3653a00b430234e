import * as z from "zod";
import type { Post } from "../memory/peer-queues.ts";

/** Messages of the slot handover: `post` to all instances, `slot` to one, and its answer `took`. */

/** Heads in one post. */
export const HEADS_MAX = 64;

const Head = z.tuple([z.string(), z.string(), z.int(), z.number(), z.int().positive(), z.string()]);
const Heads = z.array(Head).max(HEADS_MAX);
const StoredPost = z.object({ s: z.number(), h: Heads });
const HandoverMessage = z.discriminatedUnion("k", [
  z.object({ k: z.literal("post"), i: z.string(), p: z.string(), s: z.number(), h: Heads }),
  z.object({
    ...{ k: z.literal("slot"), i: z.string(), p: z.string(), id: z.int() },
    ...{ n: z.string(), reserved: z.int().min(0) },
  }),
  z.object({
    ...{ k: z.literal("took"), i: z.string(), p: z.string(), id: z.int() },
    ...{ s: z.number(), h: Heads },
    /** Slots of the node in use; absent if the slot was not used. */
    reserved: z.int().min(0).optional(),
  }),
]);
export type HandoverMessage = z.infer<typeof HandoverMessage>;
export type SlotMessage = Extract<HandoverMessage, { k: "slot" }>;
export type TookMessage = Extract<HandoverMessage, { k: "took" }>;

/** `undefined` for a text that this release does not understand, such as one of another program under our keys. */
export const parseHandoverMessage = (text: string): HandoverMessage | undefined =>
  HandoverMessage.safeParse(jsonOf(text)).data;

export const parseStoredPost = (text: string): Post | undefined =>
  StoredPost.safeParse(jsonOf(text)).data;

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
