import { until } from "@tenure/testing/until";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import * as z from "zod";
import { HOT_STORES, openTestHot, type TestHot } from "../../testing/hot-stores.ts";
import { claimOwner, dropOwner, ownerKeys, readOwner } from "../membership/store/owner-store.ts";
import { defineInline } from "./script.ts";

const later = { outcome: "owned" } as const;

// One story for every store of hot state. A script that means something else in one of them fails here.
describe.each(HOT_STORES)("hot store conformance: %s", (kind) => {
  let store: TestHot;
  beforeAll(async () => {
    store = await openTestHot(kind);
  });
  afterAll(() => store.hot.close());

  const key = (name: string) => ownerKeys.node(store.hot.prefix, name);
  const claim = (name: string, instanceId: string, epoch: number) =>
    claimOwner(store.hot, { key: key(name), owner: { instanceId, epoch }, ttlMs: 60_000 });

  test("says what it is and answers a ping", async () => {
    expect(store.hot.kind).toBe(kind);
    await store.hot.ping();
  });

  test("the newest connection owns; an older one is told by whom it was replaced", async () => {
    expect(await claim("n1", "a", 5)).toEqual(later);
    expect(await claim("n1", "b", 6)).toEqual(later);
    expect(await claim("n1", "a", 5)).toEqual({
      outcome: "newer",
      owner: { instanceId: "b", epoch: 6 },
    });
    expect(await readOwner(store.hot, key("n1"))).toEqual({ instanceId: "b", epoch: 6 });
  });

  test("the same question again gets the same answer", async () => {
    expect(await claim("n2", "a", 7)).toEqual(later);
    expect(await claim("n2", "a", 7)).toEqual(later);
  });

  test("a late close removes only its own connection", async () => {
    await claim("n3", "a", 1);
    await claim("n3", "b", 2);
    expect(await dropOwner(store.hot, key("n3"), { instanceId: "a", epoch: 1 })).toBe(false);
    expect(await readOwner(store.hot, key("n3"))).toEqual({ instanceId: "b", epoch: 2 });
    expect(await dropOwner(store.hot, key("n3"), { instanceId: "b", epoch: 2 })).toBe(true);
    expect(await readOwner(store.hot, key("n3"))).toBeUndefined();
    expect(await dropOwner(store.hot, key("n3"), { instanceId: "b", epoch: 2 })).toBe(false);
  });

  test("epochs up to 2^53-1 and instance ids with colons keep their value", async () => {
    const owner = { instanceId: "host:1.2:x", epoch: 2 ** 53 - 1 };
    expect(await claimOwner(store.hot, { key: key("n4"), owner, ttlMs: 60_000 })).toEqual(later);
    expect(await readOwner(store.hot, key("n4"))).toEqual(owner);
  });

  test("64 rivals for one connection: the highest epoch has it, whatever the order", async () => {
    await Promise.all(Array.from({ length: 64 }, (_, n) => claim("n5", `i${n}`, (n * 37) % 64)));
    expect((await readOwner(store.hot, key("n5")))?.epoch).toBe(63);
  });

  test("an expired key is gone, and its connection may write it again", async () => {
    const owner = { instanceId: "a", epoch: 3 };
    await claimOwner(store.hot, { key: key("n6"), owner, ttlMs: 20 });
    store.advance(21);
    const gone = async () => (await readOwner(store.hot, key("n6"))) === undefined;
    await until(gone, { deadlineMs: 60_000, what: "the key to run out" });
    expect(await claim("n6", "a", 3)).toEqual(later);
  });

  test("arguments that do not fit are refused before they are sent", async () => {
    const owner = { instanceId: "a", epoch: Number.NaN };
    await expect(claimOwner(store.hot, { key: key("n7"), owner, ttlMs: 1_000 })).rejects.toThrow();
    expect(await readOwner(store.hot, key("n7"))).toBeUndefined();
  });

  test("a reply that is not of the contract is an error, never a wrong answer", async () => {
    const reply = z.tuple([z.literal("something else")]);
    const script = defineInline(
      { name: "wrong-reply", lua: "return { 'not that' }", args: z.object({}), reply },
      () => ["not that"] as never,
    );
    await expect(store.hot.run(script, { key: key("n8") }, {})).rejects.toThrow();
  });

  test("a subscriber receives what is published", async () => {
    const heard: string[] = [];
    const channel = `${store.hot.prefix}:wake`;
    await store.hot.subscribe(channel, (message) => heard.push(message));
    const hears = async () => {
      await store.hot.publish(channel, "up");
      return heard.includes("up");
    };
    await until(hears, { deadlineMs: 60_000, what: "the message" });
  });
});
