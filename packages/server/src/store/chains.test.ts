import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { scratchDirectory } from "@tenure/testing/scratch";
import { startRedis } from "@tenure/testing/stores/redis";
import { until } from "@tenure/testing/until";
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from "vitest";
import * as z from "zod";
import { HOT_STORES, openTestHot, type TestHot } from "../../testing/hot-stores.ts";
import { type Call, type Condition, SKIPPED, type When } from "./call.ts";
import type { HotStore } from "./hot-store.ts";
import { openRedis, type RedisStore, waitUntilReady } from "./redis.ts";
import { defineScript } from "./script.ts";

/** Appends its words to a list, and replies with them behind a number. */
const note = defineScript({
  file: luaFile(
    "note-words",
    "for word in string.gmatch(words, '%S+') do redis.call('RPUSH', list, word) end\nreturn { 'noted', 7, words }\n",
  ),
  keys: ["list"],
  texts: ["words"],
  args: z.object({ words: z.string() }),
  reply: z.tuple([z.literal("noted"), z.int(), z.string()]),
}).inMemory((space, { list }, { words }) => {
  space.list(list).push(...words.split(" "));
  return ["noted", 7, words];
});

/** Appends its words, and fails then. */
const fail = defineScript({
  file: luaFile("note-and-fail", "redis.call('RPUSH', list, words)\nredis.call('GET', list)\n"),
  keys: ["list"],
  texts: ["words"],
  args: z.object({ words: z.string() }),
  reply: z.tuple([z.literal("never")]),
}).inMemory((space, { list }, { words }) => {
  space.list(list).push(words);
  throw new Error("WRONGTYPE");
});

const read = defineScript({
  file: luaFile("read-words", "return redis.call('LRANGE', list, 0, -1)\n"),
  keys: ["list"],
  texts: ["words"],
  args: z.object({ words: z.string() }),
  reply: z.array(z.string()),
}).inMemory((space, { list }) => [...space.list(list)]);

/** Each list in a slot of its own. */
class Lists {
  readonly #hot: HotStore;
  readonly #name = Math.random().toString(36).slice(2);

  constructor(hot: HotStore) {
    this.#hot = hot;
  }

  key = (list: string) => `${this.#hot.prefix}:{${this.#name}:${list}}`;
  note = (list: string, words: string) =>
    this.#hot.start(note, { list: this.key(list) }, { words });
  noteIf = (when: When<"words">, list: string, words: string) =>
    this.#hot.startIf(when, note, { list: this.key(list) }, { words });
  failIf = (when: When<"words">, list: string, words: string) =>
    this.#hot.startIf(when, fail, { list: this.key(list) }, { words });
  read = (list: string) => this.#hot.run(read, { list: this.key(list) }, { words: "" });
}

const noted = (call: Call): Condition => ({ call, at: 0, is: "noted" });
const settled = (call: Call) => call.reply.then(String, () => "failed");

/** Waits until the calls have answered, so that what depends on them is decided here and not in the batch. */
type Between = (...calls: Call[]) => Promise<unknown>;
const FORMS: [name: string, between: Between][] = [
  ["started in one tick", async () => {}],
  [
    "each started when the ones before have answered",
    (...calls) => Promise.all(calls.map(settled)),
  ],
  // Sent, and not answered yet.
  ["each started a tick later", () => new Promise((resolve) => setImmediate(resolve))],
];

describe.each(HOT_STORES)("calls that depend on others: %s", (kind) => {
  let store: TestHot;
  beforeAll(async () => {
    store = await openTestHot(kind);
  });
  afterAll(() => store.hot.close());

  describe.each(FORMS)("%s", (_, between) => {
    test("a chain runs in its order as long as its words are there", async () => {
      const lists = new Lists(store.hot);
      const first = lists.note("a", "one");
      await between(first);
      const second = lists.noteIf({ all: [noted(first)] }, "b", "two");
      await between(first, second);
      const all = [{ call: first, at: 1, is: "7" }, { call: second, at: 2 }, noted(second)];
      const third = lists.noteIf({ all }, "a", "three");
      expect(await third.reply).toEqual(["noted", 7, "three"]);
      expect([await lists.read("a"), await lists.read("b")]).toEqual([["one", "three"], ["two"]]);
    });

    test.each([
      ["another word", { at: 0, is: "other" }],
      ["no word", { at: 3 }],
    ])("%s skips a call and all that depend on it, and no other", async (_, condition) => {
      const lists = new Lists(store.hot);
      const first = lists.note("a", "one");
      await between(first);
      const second = lists.noteIf({ all: [noted(first), { call: first, ...condition }] }, "b", "x");
      await between(first, second);
      const third = lists.noteIf({ all: [noted(second)] }, "a", "y");
      const other = lists.noteIf({ all: [noted(first)] }, "b", "two");
      expect([await second.reply, await third.reply]).toEqual([SKIPPED, SKIPPED]);
      expect(await other.reply).toEqual(["noted", 7, "two"]);
      expect([await lists.read("a"), await lists.read("b")]).toEqual([["one"], ["two"]]);
    });

    test("an error halfway leaves what was done before it, and skips what depends on it", async () => {
      const lists = new Lists(store.hot);
      const first = lists.note("a", "one");
      await between(first);
      const failed = lists.failIf({ all: [noted(first)] }, "b", "half");
      failed.reply.catch(() => {});
      await between(first, failed);
      const skipped = lists.noteIf({ all: [{ call: failed, at: 0 }] }, "a", "never");
      const other = lists.noteIf({ all: [noted(first)] }, "c", "on");
      await expect(failed.reply).rejects.toThrow("WRONGTYPE");
      expect(await skipped.reply).toBe(SKIPPED);
      expect(await other.reply).toEqual(["noted", 7, "on"]);
      expect([await lists.read("a"), await lists.read("b")]).toEqual([["one"], ["half"]]);
    });

    test("a shared call keeps the words whose own condition holds", async () => {
      const lists = new Lists(store.hot);
      const [first, second] = [lists.note("a", "one"), lists.note("b", "two")];
      await between(first, second);
      const refused = { call: second, at: 0, is: "other" };
      const words = {
        of: "words",
        each: [noted(first), refused, undefined, noted(second)],
      } as const;
      const shared = lists.noteIf({ words }, "c", "v w x y");
      await between(first, second, shared);
      const none = lists.noteIf({ words: { of: "words", each: [refused] } }, "c", "z");
      const after = lists.noteIf({ all: [{ call: shared, at: 2, is: "v" }] }, "c", "never");
      expect(await shared.reply).toEqual(["noted", 7, "v x y"]);
      expect([await none.reply, await after.reply]).toEqual([SKIPPED, SKIPPED]);
      expect(await lists.read("c")).toEqual(["v", "x", "y"]);
    });
  });

  test("more calls than one batch takes keep order and conditions", async () => {
    const lists = new Lists(store.hot);
    const firsts = Array.from({ length: 400 }, (_, at) => lists.note("a", String(at)));
    const seconds = firsts.map((first, at) =>
      lists.noteIf({ all: [noted(first)] }, "b", String(at)),
    );
    const skipped = seconds.map((call) =>
      lists.noteIf({ all: [{ call, at: 1, is: "8" }] }, "c", "x"),
    );
    const replies = await Promise.all(skipped.map(({ reply }) => reply));
    expect(new Set(replies)).toEqual(new Set([SKIPPED]));
    expect((await lists.read("a")).map(Number)).toEqual(firsts.map((_, at) => at));
    expect(new Set(await lists.read("b")).size).toBe(firsts.length);
    expect(await lists.read("c")).toEqual([]);
  });
});

describe("calls that depend on others, on one Redis", () => {
  const commandsOf = (store: RedisStore) => {
    const sent = vi.spyOn(store.client, "evalsha");
    return () => sent.mock.calls.length;
  };

  async function open(conf: Record<string, string> = {}): Promise<RedisStore> {
    const redis = await startRedis({ conf });
    onTestFinished(() => redis.discard());
    const store = openRedis({ mode: "single", urls: [redis.url], prefix: "t" });
    onTestFinished(() => store.close());
    await waitUntilReady(store, 10_000);
    return store;
  }

  function chain(lists: Lists): Promise<unknown[]> {
    const first = lists.note("a", "one");
    const second = lists.noteIf({ all: [noted(first)] }, "b", "two");
    const each = [noted(first), { call: second, at: 0, is: "other" }];
    const third = lists.noteIf({ words: { of: "words", each } }, "c", "x y");
    const fourth = lists.noteIf({ all: [noted(third)] }, "a", "four");
    return Promise.all([first, second, third, fourth].map(({ reply }) => reply));
  }
  const REPLIES = ["one", "two", "x", "four"].map((words) => ["noted", 7, words]);

  test("a chain of one tick is one command", async () => {
    const store = await open();
    await chain(new Lists(store)); // caches the script
    const sent = commandsOf(store);
    expect(await chain(new Lists(store))).toEqual(REPLIES);
    expect(sent()).toBe(1);
  });

  test("a server that refuses keys of two slots gets every call alone, and the same is done", async () => {
    const store = await open({ "cluster-enabled": "yes", appendonly: "no" });
    await store.client.call("CLUSTER", "ADDSLOTSRANGE", "0", "16383");
    await until(
      async () => String(await store.client.call("CLUSTER", "INFO")).includes("state:ok"),
      {
        what: "a server with all slots",
      },
    );
    const lists = new Lists(store);
    expect(await chain(lists)).toEqual(REPLIES);
    expect([await lists.read("a"), await lists.read("b"), await lists.read("c")]).toEqual([
      ["one", "four"],
      ["two"],
      ["x"],
    ]);
    expect(await chain(new Lists(store))).toEqual(REPLIES);
  });

  test("a condition whose call is never answered starts nothing", async () => {
    const redis = await startRedis();
    onTestFinished(() => redis.discard());
    const store = openRedis({
      mode: "single",
      urls: [redis.url],
      prefix: "t",
      commandTimeoutMs: 200,
    });
    onTestFinished(() => store.close());
    await waitUntilReady(store, 10_000);
    const lists = new Lists(store);
    await redis.freeze();
    const first = lists.note("a", "one");
    first.reply.catch(() => {});
    await new Promise((resolve) => setImmediate(resolve));
    const second = lists.noteIf({ all: [noted(first)] }, "b", "two");
    await expect(first.reply).rejects.toThrow();
    expect(await second.reply).toBe(SKIPPED);
    await redis.thaw();
    await until(async () => (await lists.read("b").catch(() => ["?"])).length === 0, {
      what: "an answer",
    });
  });
});

function luaFile(name: string, body: string): URL {
  const path = join(scratchDirectory("lua"), `${name}.lua`);
  writeFileSync(path, `local list = KEYS[1]\nlocal words = ARGV[2]\n${body}`);
  return pathToFileURL(path);
}
