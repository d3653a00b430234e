import * as z from "zod";
import { presenceKeys } from "../membership/store/presence-store.ts";
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

const listScript = defineScript({
  file: new URL("./lua/list-instances.lua", import.meta.url),
  keys: ["all"],
  args: z.object({}),
  reply: z.tuple([z.literal("listed")], z.string()),
}).inMemory(onlyOnRedis);

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

const presenceScript = defineScript({
  file: new URL("./lua/read-presence.lua", import.meta.url),
  keys: ["presence"],
  args: z.object({}),
  reply: z.tuple([z.enum(["present", "absent"])]),
}).inMemory(onlyOnRedis);

/** An instance on the list of inboxes that somebody must read, with its entry as it was read. */
export interface Listed {
  instanceId: string;
  entry: string;
}

export async function listInstances(hot: HotStore): Promise<Listed[]> {
  const all = presenceKeys.all(hot.prefix);
  const [, ...pairs] = await hot.run(listScript, { all }, {});
  const listed: Listed[] = [];
  for (let at = 0; at < pairs.length; at += 2)
    listed.push({ instanceId: pairs[at]!, entry: pairs[at + 1]! });
  return listed.sort((a, b) => (a.instanceId < b.instanceId ? -1 : 1));
}

export async function markInstance(
  hot: HotStore,
  { instanceId, mark }: { instanceId: string; mark: string },
): Promise<void> {
  const all = presenceKeys.all(hot.prefix);
  await hot.run(markScript, { all }, { instance_id: instanceId, mark });
}

/** `false`: somebody put it on the list again after `entry` was read. */
export async function delistInstance(
  hot: HotStore,
  { instanceId, entry }: Listed,
): Promise<boolean> {
  const all = presenceKeys.all(hot.prefix);
  const [outcome] = await hot.run(delistScript, { all }, { instance_id: instanceId, entry });
  return outcome === "delisted";
}

export async function isPresent(hot: HotStore, instanceId: string): Promise<boolean> {
  const presence = presenceKeys.presence(hot.prefix, instanceId);
  return (await hot.run(presenceScript, { presence }, {}))[0] === "present";
}

export interface Opening {
  instanceId: string;
  group: string;
  mark: string;
}

const OPENING_TTL_MS = 60_000;

/** The mark to open it with, which may be that of somebody who opens it too; `undefined` when it is open. */
export async function prepareInbox(
  hot: HotStore,
  { instanceId, group, mark }: Opening,
): Promise<string | undefined> {
  const keys = inboxAndOpening(hot, instanceId);
  const reply = await hot.run(prepareScript, keys, { group, mark, ttl_ms: OPENING_TTL_MS });
  return reply[0] === "prepared" ? reply[1] : undefined;
}

/** `false`: it was closed since it was prepared. */
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
