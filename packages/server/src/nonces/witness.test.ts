import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { HOT_STORES, openTestHot, type TestHot } from "../../testing/hot-stores.ts";
import { noteWitness } from "./store/witness-store.ts";
import { coalesced, type Position } from "./witness.ts";

const position = (confirmed_at: number, wal: string): Position => ({
  ...{ system: "7", confirmed_at, run: 1, wal },
});

describe.each(HOT_STORES)("the witness on %s", (kind) => {
  let store: TestHot;
  beforeAll(async () => {
    store = await openTestHot(kind);
  });
  afterAll(() => store.hot.close());

  test("keeps the newest position, from any instance and in any order", async () => {
    expect(await noteWitness(store.hot)).toBeUndefined();
    const early = position(1_700_000_000_000_000, "0/FF");
    const later = position(1_700_000_000_000_000, "1/0");
    const confirmed = position(1_700_000_000_000_001, "0/1");
    expect(await noteWitness(store.hot, later)).toEqual(later);
    expect(await noteWitness(store.hot, early)).toEqual(later);
    expect(await noteWitness(store.hot, confirmed)).toEqual(confirmed);
    expect(await noteWitness(store.hot, later)).toEqual(confirmed);
    expect(await noteWitness(store.hot)).toEqual(confirmed);
  });
});

test("writes are gathered, and a caller waits for the one that covers its position", async () => {
  const written: string[] = [];
  let letGo = () => {};
  const witness = coalesced({
    name: "slow",
    read: async () => undefined,
    async write({ wal }) {
      await new Promise<void>((resolve) => (letGo = resolve));
      written.push(wal);
    },
  });
  const first = witness.write(position(1, "0/1"));
  const others = ["0/2", "0/4", "0/3"].map((wal) => witness.write(position(1, wal)));
  letGo();
  await first;
  expect(written).toEqual(["0/1"]);
  await Promise.resolve();
  letGo();
  await Promise.all(others);
  expect(written).toEqual(["0/1", "0/4"]);
});
