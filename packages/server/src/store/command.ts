import * as z from "zod";
import type { HotStore } from "./hot-store.ts";
import type { MemorySpace } from "./memory-space.ts";
import { type Check, defineInline } from "./script.ts";

type Command<Args, Reply> = (hot: HotStore, key: string, args: Args) => Promise<Reply>;

/**
 * Defines a Redis command over one key, with its form in memory. `op` names it in the metrics. It runs as a script of one
 * line, and so joins the other scripts of its tick in one round trip. A step that decides by what it reads is a script
 * with a file of its own.
 */
function define<Args, Reply>(
  op: string,
  lua: string,
  { args, reply }: { args: Check<Args>; reply: Check<Reply> },
  memory: (space: MemorySpace, key: string, args: Args) => Reply,
): Command<Args, Reply> {
  const script = defineInline({ name: op, lua, args, reply }, memory);
  return (hot, key, args) => hot.run(script, { key }, args);
}

const NONE = z.object({});
/** Lua's `unpack` takes a few thousand values at most. */
const Members = z.object({ members: z.array(z.string()).min(1).max(1_000) });
const Texts = z.array(z.string());
const NullableTexts = z.array(z.string().nullable());

export function getCommand(op: string) {
  const get = define(
    op,
    "return { redis.call('GET', key) }",
    { args: NONE, reply: NullableTexts },
    (space, key) => [space.get(key) ?? null],
  );
  return async (hot: HotStore, key: string) => (await get(hot, key, {}))[0] ?? undefined;
}

/** SET with an expiry. */
export function setCommand(op: string) {
  const set = define(
    op,
    "return redis.call('SET', key, args.value, 'PX', args.ttl_ms)",
    {
      args: z.object({ value: z.string(), ttl_ms: z.int().positive() }),
      reply: z.literal("OK"),
    },
    (space, key, { value, ttl_ms }) => {
      space.set(key, value, ttl_ms);
      return "OK";
    },
  );
  return async (hot: HotStore, key: string, value: string, ttlMs: number) => {
    await set(hot, key, { value, ttl_ms: ttlMs });
  };
}

export function existsCommand(op: string) {
  const exists = define(
    op,
    "return redis.call('EXISTS', key)",
    { args: NONE, reply: z.int() },
    (space, key) => (space.has(key) ? 1 : 0),
  );
  return async (hot: HotStore, key: string) => (await exists(hot, key, {})) === 1;
}

/** DEL; whether the key was there. */
export function deleteCommand(op: string) {
  const remove = define(
    op,
    "return redis.call('DEL', key)",
    { args: NONE, reply: z.int() },
    (space, key) => (space.delete(key) ? 1 : 0),
  );
  return async (hot: HotStore, key: string) => (await remove(hot, key, {})) === 1;
}

/** HGETALL. */
export function readHashCommand(op: string) {
  const readHash = define(
    op,
    "return redis.call('HGETALL', key)",
    { args: NONE, reply: Texts },
    (space, key) => [...space.hash(key)].flat(),
  );
  return async (hot: HotStore, key: string) => inPairs(await readHash(hot, key, {}));
}

/** HMGET of fixed fields; `undefined` for a missing one. */
export function readFieldsCommand<Field extends string>(op: string, fields: readonly Field[]) {
  const names = fields.map((field) => `'${field}'`).join(", ");
  const readFields = define(
    op,
    `return redis.call('HMGET', key, ${names})`,
    { args: NONE, reply: NullableTexts },
    (space, key) => fields.map((field) => space.hash(key).get(field) ?? null),
  );
  return async (hot: HotStore, key: string) => {
    const values = await readFields(hot, key, {});
    const found: Partial<Record<Field, string>> = {};
    for (const [index, field] of fields.entries()) found[field] = values[index] ?? undefined;
    return found;
  };
}

/** SADD. */
export function addMembersCommand(op: string) {
  const add = define(
    op,
    "return redis.call('SADD', key, unpack(args.members))",
    { args: Members, reply: z.int() },
    (space, key, { members }) => {
      const set = space.members(key);
      const before = set.size;
      for (const member of members) set.add(member);
      return set.size - before;
    },
  );
  return (hot: HotStore, key: string, members: string[]) => add(hot, key, { members });
}

/** SREM. */
export function removeMembersCommand(op: string) {
  const remove = define(
    op,
    "return redis.call('SREM', key, unpack(args.members))",
    { args: Members, reply: z.int() },
    (space, key, { members }) =>
      members.filter((member) => space.members(key).delete(member)).length,
  );
  return (hot: HotStore, key: string, members: string[]) => remove(hot, key, { members });
}

/** SMEMBERS. */
export function readMembersCommand(op: string) {
  const readMembers = define(
    op,
    "return redis.call('SMEMBERS', key)",
    { args: NONE, reply: Texts },
    (space, key) => [...space.members(key)],
  );
  return (hot: HotStore, key: string) => readMembers(hot, key, {});
}

interface ScorePage {
  offset: number;
  limit: number;
  max?: number | undefined;
}

/** ZREVRANGEBYSCORE WITHSCORES: the members with the highest scores up to `max` first. */
export function readHighestCommand(op: string) {
  const readHighest = define(
    op,
    "return redis.call('ZREVRANGEBYSCORE', key, args.max or '+inf', '-inf', 'WITHSCORES', 'LIMIT', args.offset, args.limit)",
    {
      args: z.object({
        offset: z.int().min(0),
        limit: z.int().positive(),
        max: z.int().optional(),
      }),
      reply: Texts,
    },
    (space, key, { offset, limit, max = Number.POSITIVE_INFINITY }) =>
      [...space.scores(key)]
        .filter(([, score]) => score <= max)
        .sort(([a, one], [b, other]) => other - one || (a < b ? 1 : -1))
        .slice(offset, offset + limit)
        .flatMap(([member, score]) => [member, String(score)]),
  );
  return async (hot: HotStore, key: string, page: ScorePage) =>
    inPairs(await readHighest(hot, key, page)).map(([member, score]): [string, number] => [
      member,
      Number(score),
    ]);
}

function inPairs(texts: readonly string[]): [string, string][] {
  const pairs: [string, string][] = [];
  for (let at = 0; at < texts.length; at += 2) pairs.push([texts[at]!, texts[at + 1]!]);
  return pairs;
}
