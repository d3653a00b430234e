import { TenureError } from "@tenure/protocol";
import * as z from "zod";
import type { HotStore } from "../store/hot-store.ts";
import type { RedisStore } from "../store/redis.ts";
import { defineScript } from "../store/script.ts";
import { type DeadLetter, LETTERS_KEPT_MS, type LetterId } from "./contract.ts";
import { deliveryKeys, onlyOnRedis } from "./delivery-keys.ts";
import { readDoorbell } from "./doorbell.ts";

const discardScript = defineScript({
  file: new URL("./lua/discard-letter.lua", import.meta.url),
  keys: ["dlq"],
  args: z.object({ id: z.string() }),
  reply: z.tuple([z.enum(["discarded", "absent"])]),
}).inMemory(onlyOnRedis);

export async function discardLetter(
  store: RedisStore,
  { instanceId, streamId }: LetterId,
): Promise<boolean> {
  const dlq = deliveryKeys.dlq(store.prefix, instanceId);
  return (await store.run(discardScript, { dlq }, { id: streamId }))[0] === "discarded";
}

const expireScript = defineScript({
  file: new URL("./lua/expire-letters.lua", import.meta.url),
  keys: ["dlq"],
  args: z.object({ keep_ms: z.int().positive() }),
  reply: z.tuple([z.literal("expired"), z.int()]),
}).inMemory(onlyOnRedis);

/** Drops the letters of an instance that are older than `LETTERS_KEPT_MS`; returns their number. */
export async function expireLetters(hot: HotStore, instanceId: string): Promise<number> {
  const dlq = deliveryKeys.dlq(hot.prefix, instanceId);
  return (await hot.run(expireScript, { dlq }, { keep_ms: LETTERS_KEPT_MS }))[1];
}

/** Reads letters after `after`, oldest first. Not a script: the reply of a script is text, and a letter may be binary. */
export async function readLetters(
  store: RedisStore,
  instanceId: string,
  { after, limit }: { after?: string | undefined; limit: number },
): Promise<DeadLetter[]> {
  const from = after === undefined ? "-" : `(${after}`;
  return rangeOfLetters(store, instanceId, { from, to: "+", limit });
}

export async function readLetter(
  store: RedisStore,
  { instanceId, streamId }: LetterId,
): Promise<DeadLetter | undefined> {
  const range = { from: streamId, to: streamId, limit: 1 };
  return (await rangeOfLetters(store, instanceId, range))[0];
}

async function rangeOfLetters(
  store: RedisStore,
  instanceId: string,
  { from, to, limit }: { from: string; to: string; limit: number },
): Promise<DeadLetter[]> {
  const dlq = deliveryKeys.dlq(store.prefix, instanceId);
  try {
    const rows = await store.client.xrangeBuffer(dlq, from, to, "COUNT", limit);
    return rows.map(([id, fields]) => letterOf(instanceId, id.toString(), fields));
  } catch (error) {
    if ((error as Error).name === "ReplyError") throw error;
    const reason = (error as Error).message;
    throw new TenureError("DEPENDENCY_DOWN", { dependency: "redis", reason }, { cause: error });
  }
}

function letterOf(instanceId: string, streamId: string, fields: Buffer[]): DeadLetter {
  const value = (name: string): Buffer => {
    const at = fields.findIndex((field, index) => index % 2 === 0 && field.toString() === name);
    return fields[at + 1] && at >= 0 ? fields[at + 1]! : Buffer.alloc(0);
  };
  const bytes = value("bytes");
  return {
    instanceId,
    streamId,
    reason: value("reason").toString(),
    deliveries: Number(value("deliveries")),
    ageMs: Number(value("age_ms")),
    movedAtMs: Number(value("moved_at_ms")),
    bytes,
    message: readDoorbell(bytes.toString()),
  };
}
