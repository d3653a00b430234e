import * as z from "zod";
import type { Condition } from "../../store/call.ts";
import { getCommand } from "../../store/command.ts";
import type { HotStore } from "../../store/hot-store.ts";
import { defineScript } from "../../store/script.ts";

/** Which instance a node's or a session's connection is on. The epoch is the connection's number. */
export interface Owner {
  instanceId: string;
  epoch: number;
}

export const ownerKeys = {
  node: (prefix: string, nodeId: string) => `${prefix}:nodes:owner:{node:${nodeId}}`,
  session: (prefix: string, sessionId: string) => `${prefix}:sessions:owner:{session:${sessionId}}`,
};

const claimScript = defineScript({
  file: new URL("./lua/claim-owner.lua", import.meta.url),
  keys: ["owner"],
  args: z.object({ holder: z.string(), epoch: z.int(), ttl_ms: z.int().positive() }),
  reply: z.union([z.tuple([z.literal("owned")]), z.tuple([z.literal("newer"), z.string()])]),
}).inMemory((space, { owner }, { holder, epoch, ttl_ms }) => {
  const held = space.get(owner);
  if (held && parseHolder(held).epoch > epoch) return ["newer", held];
  space.set(owner, holder, ttl_ms);
  return ["owned"];
});

const dropScript = defineScript({
  file: new URL("./lua/drop-owner.lua", import.meta.url),
  keys: ["owner"],
  args: z.object({ holder: z.string() }),
  reply: z.union([
    z.tuple([z.literal("dropped")]),
    z.tuple([z.literal("not_ours"), z.string()]),
    z.tuple([z.literal("absent")]),
  ]),
}).inMemory((space, { owner }, { holder }) => {
  const held = space.get(owner);
  if (!held) return ["absent"];
  if (held !== holder) return ["not_ours", held];
  space.delete(owner);
  return ["dropped"];
});

const readHolder = getCommand("read-owner");

const checkScript = defineScript({
  file: new URL("./lua/check-owner.lua", import.meta.url),
  keys: ["owner"],
  texts: ["instance_id"],
  args: z.object({ instance_id: z.string() }),
  reply: z.tuple([z.enum(["here", "elsewhere", "absent"])]),
}).inMemory((space, { owner }, { instance_id }) => {
  const held = space.get(owner);
  if (!held) return ["absent"];
  return [parseHolder(held).instanceId === instance_id ? "here" : "elsewhere"];
});

/** Checks on conditions whether the connection is on this instance. Returns the condition that it is. */
export function isOwnedBy(
  hot: HotStore,
  when: { all: readonly Condition[] },
  { key, instanceId }: { key: string; instanceId: string },
): Condition {
  const call = hot.startIf(when, checkScript, { owner: key }, { instance_id: instanceId });
  call.reply.catch(() => {}); // then the condition does not hold
  return { call, at: 0, is: "here" };
}

export type OwnerClaim = { outcome: "owned" } | { outcome: "newer"; owner: Owner };

/** Also the renewal: a key that ran out while its connection lived is written again. */
export async function claimOwner(
  hot: HotStore,
  { key, owner, ttlMs }: { key: string; owner: Owner; ttlMs: number },
): Promise<OwnerClaim> {
  const args = { holder: holderText(owner), epoch: owner.epoch, ttl_ms: ttlMs };
  const reply = await hot.run(claimScript, { owner: key }, args);
  return reply[0] === "owned"
    ? { outcome: "owned" }
    : { outcome: "newer", owner: parseHolder(reply[1]) };
}

/** Resolves to false when another connection owns it by now, or none does: then nothing is removed. */
export async function dropOwner(hot: HotStore, key: string, owner: Owner): Promise<boolean> {
  const reply = await hot.run(dropScript, { owner: key }, { holder: holderText(owner) });
  return reply[0] === "dropped";
}

export async function readOwner(hot: HotStore, key: string): Promise<Owner | undefined> {
  const holder = await readHolder(hot, key);
  return holder ? parseHolder(holder) : undefined;
}

const holderText = ({ instanceId, epoch }: Owner): string => `${instanceId}:${epoch}`;

/** An instance id may contain a colon, an epoch never does. */
function parseHolder(holder: string): Owner {
  const colon = holder.lastIndexOf(":");
  return { instanceId: holder.slice(0, colon), epoch: Number(holder.slice(colon + 1)) };
}
