import type { HotStore } from "../../store/hot-store.ts";
import { defineScript } from "../../store/script.ts";
import { jobKeys } from "./keys.ts";
import { unchecked, uncheckedReply } from "./unchecked.ts";

const postScript = defineScript<
  "waiting",
  Record<"instance" | "heads" | "ttl_ms", string>,
  readonly ["others", ...string[]]
>({
  file: new URL("./lua/post-waiting.lua", import.meta.url),
  keys: ["waiting"],
  texts: ["instance", "heads", "ttl_ms"],
  args: unchecked(),
  reply: uncheckedReply(),
}).inMemory((space, { waiting }, { instance, heads, ttl_ms }) => {
  const nowMs = space.nowMs();
  const entries = space.hash(waiting);
  if (heads === "") entries.delete(instance);
  else {
    entries.set(instance, `${nowMs + Number(ttl_ms)} ${heads}`);
    space.expire(waiting, Number(ttl_ms) * 4);
  }
  const others: string[] = [];
  for (const [name, entry] of entries) {
    const blank = entry.indexOf(" ");
    if (Number(entry.slice(0, blank)) <= nowMs) entries.delete(name);
    else if (name !== instance) others.push(name, entry.slice(blank + 1));
  }
  return ["others", ...others];
});

/** The waiting jobs of one instance in one pool. */
export interface WaitingPost {
  pool: string;
  instanceId: string;
  /** As one text; empty when nothing waits there. */
  heads: string;
  ttlMs: number;
}

/** Posts the heads of this instance's wait queue, and returns those of the others, by instance. */
export async function postWaiting(
  hot: HotStore,
  { pool, instanceId, heads, ttlMs }: WaitingPost,
): Promise<Map<string, string>> {
  const waiting = jobKeys.waiting(hot.prefix, pool);
  const args = { instance: instanceId, heads, ttl_ms: String(ttlMs) };
  const [, ...pairs] = await hot.run(postScript, { waiting }, args);
  const others = new Map<string, string>();
  for (let at = 0; at < pairs.length; at += 2) others.set(pairs[at]!, pairs[at + 1]!);
  return others;
}
