import * as z from "zod";
import { readHighestCommand } from "../../store/command.ts";
import type { HotStore } from "../../store/hot-store.ts";
import { defineScript } from "../../store/script.ts";

/** When each node, and each session, was seen last. Those not seen for long are deleted. */
export const lastSeenKeys = {
  nodes: (prefix: string) => `${prefix}:v1:nodes:last_seen`,
  sessions: (prefix: string) => `${prefix}:v1:sessions:last_seen`,
};

/** Redis' Lua unpacks a few thousand values at most. */
export const BATCH_MAX = 1_000;

const touchScript = defineScript({
  file: new URL("./lua/touch.lua", import.meta.url),
  keys: ["last_seen"],
  args: z.object({ members: z.array(z.string()).min(1).max(BATCH_MAX) }),
  reply: z.tuple([z.literal("touched")]),
}).inMemory((space, { last_seen }, { members }) => {
  const scores = space.scores(last_seen);
  for (const member of members)
    scores.set(member, Math.max(scores.get(member) ?? 0, space.nowMs()));
  return ["touched"];
});

const takeUnseenScript = defineScript({
  file: new URL("./lua/take-unseen.lua", import.meta.url),
  keys: ["last_seen"],
  args: z.object({ older_than_ms: z.int().positive(), limit: z.int().positive().max(BATCH_MAX) }),
  reply: z.tuple([z.literal("taken")], z.string()),
}).inMemory((space, { last_seen }, { older_than_ms, limit }) => {
  const scores = space.scores(last_seen);
  const before = space.nowMs() - older_than_ms;
  const old = [...scores].filter(([, seenMs]) => seenMs <= before).sort((a, b) => a[1] - b[1]);
  const taken = old.slice(0, limit).map(([member]) => member);
  for (const member of taken) scores.delete(member);
  return ["taken", ...taken];
});

const readNewest = readHighestCommand("read-seen");

export async function touch(hot: HotStore, key: string, members: string[]): Promise<void> {
  for (let from = 0; from < members.length; from += BATCH_MAX) {
    await hot.run(
      touchScript,
      { last_seen: key },
      { members: members.slice(from, from + BATCH_MAX) },
    );
  }
}

/** Each is handed to one caller only, who cleans up after it. */
export async function takeUnseen(
  hot: HotStore,
  key: string,
  olderThanMs: number,
): Promise<string[]> {
  const args = { older_than_ms: olderThanMs, limit: BATCH_MAX };
  const [, ...taken] = await hot.run(takeUnseenScript, { last_seen: key }, args);
  return taken;
}

export interface Seen {
  member: string;
  atMs: number;
}

export interface Page {
  offset: number;
  limit: number;
  /** Only members seen until then. */
  max?: number | undefined;
}

/** Newest first. */
export async function readSeen(hot: HotStore, key: string, page: Page): Promise<Seen[]> {
  const newest = await readNewest(hot, key, page);
  return newest.map(([member, atMs]) => ({ member, atMs }));
}
