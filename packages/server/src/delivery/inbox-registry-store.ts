import * as z from "zod";
import { presenceKeys } from "../membership/store/presence-store.ts";
import { existsCommand, readHashCommand } from "../store/command.ts";
import type { HotStore } from "../store/hot-store.ts";
import { defineScript } from "../store/script.ts";
import { deliveryKeys, onlyOnRedis } from "./delivery-keys.ts";

const prepareScript = defineScript({
  file: new URL("./lua/prepare-inbox.lua", import.meta.url),
  keys: ["inbox", "opening"],
  args: z.object({ group: z.string(), mark: z.string(), ttl_ms: z.int().positive() }),
  reply: z.union([z.tuple([z.literal("prepared"), z.string()]), z.tuple([z.literal("open")])]),
}).inMemory(onlyOnRedis);

const openScript = defineScript({
  file: new URL("./lua/open-inbox.lua", import.meta.url),
  keys: ["inbox", "opening"],
  args: z.object({ group: z.string(), mark: z.string() }),
  reply: z.tuple([z.enum(["open", "overtaken"])]),
}).inMemory(onlyOnRedis);

const closeScript = defineScript({
  file: new URL("./lua/close-inbox.lua", import.meta.url),
  keys: ["inbox", "dlq", "opening"],
  args: z.object({}),
  reply: z.union([z.tuple([z.literal("closed")]), z.tuple([z.literal("kept"), z.int(), z.int()])]),
}).inMemory(onlyOnRedis);

const readList = readHashCommand("list-instances");
const hasPresence = existsCommand("read-presence");

const markScript = defineScript({
  file: new URL("./lua/mark-instance.lua", import.meta.url),
  keys: ["all"],
  args: z.object({ instance_id: z.string(), mark: z.string() }),
  reply: z.tuple([z.literal("marked")]),
}).inMemory(onlyOnRedis);

const delistScript = defineScript({
  file: new URL("./lua/delist-instance.lua", import.meta.url),
  keys: ["all"],
  args: z.object({ instance_id: z.string(), entry: z.string() }),
  reply: z.tuple([z.enum(["delisted", "changed"])]),
}).inMemory(onlyOnRedis);

/** An inbox on the list `schedulers:all`, with its entry as it was read. */
export interface RegisteredInbox {
  instanceId: string;
  entry: string;
}

export async function listInboxes(hot: HotStore): Promise<RegisteredInbox[]> {
  const entries = await readList(hot, presenceKeys.all(hot.prefix));
  return entries
    .map(([instanceId, entry]) => ({ instanceId, entry }))
    .sort((a, b) => (a.instanceId < b.instanceId ? -1 : 1));
}

export async function markInbox(
  hot: HotStore,
  { instanceId, mark }: { instanceId: string; mark: string },
): Promise<void> {
  const all = presenceKeys.all(hot.prefix);
  await hot.run(markScript, { all }, { instance_id: instanceId, mark });
}

/** `false`: another instance renewed the entry after `entry` was read. */
export async function delistInbox(
  hot: HotStore,
  { instanceId, entry }: RegisteredInbox,
): Promise<boolean> {
  const all = presenceKeys.all(hot.prefix);
  const [outcome] = await hot.run(delistScript, { all }, { instance_id: instanceId, entry });
  return outcome === "delisted";
}

export const isPresent = (hot: HotStore, instanceId: string): Promise<boolean> =>
  hasPresence(hot, presenceKeys.presence(hot.prefix, instanceId));

export interface Opening {
  instanceId: string;
  group: string;
  mark: string;
}

const OPENING_TTL_MS = 60_000;

/** Returns the mark to open the inbox with, possibly that of a concurrent opening; `undefined` if it is open. */
export async function prepareInbox(
  hot: HotStore,
  { instanceId, group, mark }: Opening,
): Promise<string | undefined> {
  const keys = inboxAndOpening(hot, instanceId);
  const reply = await hot.run(prepareScript, keys, { group, mark, ttl_ms: OPENING_TTL_MS });
  return reply[0] === "prepared" ? reply[1] : undefined;
}

/** `false`: the inbox was closed since it was prepared. */
export async function openPrepared(
  hot: HotStore,
  { instanceId, group, mark }: Opening,
): Promise<boolean> {
  const keys = inboxAndOpening(hot, instanceId);
  return (await hot.run(openScript, keys, { group, mark }))[0] === "open";
}

/** `false`: a message or a dead letter is still there. */
export async function closeInbox(hot: HotStore, instanceId: string): Promise<boolean> {
  const keys = {
    ...inboxAndOpening(hot, instanceId),
    dlq: deliveryKeys.dlq(hot.prefix, instanceId),
  };
  return (await hot.run(closeScript, keys, {}))[0] === "closed";
}

const inboxAndOpening = (hot: HotStore, instanceId: string) => ({
  inbox: deliveryKeys.inbox(hot.prefix, instanceId),
  opening: deliveryKeys.opening(hot.prefix, instanceId),
});
