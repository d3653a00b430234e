import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { HOT_STORES, openTestHot, type TestHot } from "../../../testing/hot-stores.ts";
import { postWaiting } from "./waiting-store.ts";

describe.each(HOT_STORES)("posts of waiting jobs, on %s", (kind) => {
  let store: TestHot;
  beforeAll(async () => {
    store = await openTestHot(kind);
  });
  afterAll(() => store.hot.close());

  const post = async (instanceId: string, heads: string, pool = "gpu") =>
    Object.fromEntries(await postWaiting(store.hot, { pool, instanceId, heads, ttlMs: 1_000 }));

  test("each instance reads those of the others, until they are taken back or run out", async () => {
    expect(await post("a", "[1 2]")).toEqual({});
    expect(await post("b", '{"b": 1}')).toEqual({ a: "[1 2]" });
    expect(await post("a", "newer")).toEqual({ b: '{"b": 1}' });
    expect(await post("reader", "")).toEqual({ a: "newer", b: '{"b": 1}' });
    expect(await post("reader", "", "other-pool")).toEqual({});
    store.advance(600);
    expect(await post("b", "")).toEqual({ a: "newer" });
    store.advance(400);
    expect(await post("reader", "")).toEqual({});
  });
});
