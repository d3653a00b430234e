import * as z from "zod";
import { setCommand } from "../../store/command.ts";
import type { HotStore } from "../../store/hot-store.ts";
import { defineScript } from "../../store/script.ts";

export const presenceKeys = {
  presence: (prefix: string, instanceId: string) => `${prefix}:schedulers:presence:${instanceId}`,
  /** Every instance until its inbox and its dead letters are empty; delivery keeps it. */
  all: (prefix: string) => `${prefix}:schedulers:all`,
};

const setPresence = setCommand("announce-instance");

const withdrawScript = defineScript({
  file: new URL("./lua/withdraw-instance.lua", import.meta.url),
  keys: ["presence"],
  args: z.object({ boot_id: z.string() }),
  reply: z.union([z.tuple([z.literal("withdrawn")]), z.tuple([z.literal("absent")])]),
}).inMemory((space, { presence }, { boot_id }) => {
  if (space.get(presence) !== boot_id) return ["absent"];
  space.delete(presence);
  return ["withdrawn"];
});

export interface InstancePresence {
  instanceId: string;
  bootId: string;
}

export async function announcePresence(
  hot: HotStore,
  { instanceId, bootId }: InstancePresence,
  ttlMs: number,
): Promise<void> {
  const presence = presenceKeys.presence(hot.prefix, instanceId);
  await setPresence(hot, presence, bootId, ttlMs);
}

export async function withdrawPresence(
  hot: HotStore,
  { instanceId, bootId }: InstancePresence,
): Promise<void> {
  const presence = presenceKeys.presence(hot.prefix, instanceId);
  await hot.run(withdrawScript, { presence }, { boot_id: bootId });
}
