import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { HOT_STORES, openTestHot, type TestHot } from "../../../testing/hot-stores.ts";
import { newJobId } from "../../../testing/jobs.ts";
import type { RedisStore } from "../../store/redis.ts";
import type { JobAttempt } from "../job.ts";
import { jobKeys } from "./keys.ts";
import {
  countSlots,
  fillSlots,
  freeSlots,
  hasSlot,
  listSlots,
  renewSlots,
  reserveSlots,
  type WantedSlot,
} from "./slot-store.ts";
import { markUnavailable } from "./storm-store.ts";

const TTL_MS = 15_000;

describe.each(HOT_STORES)("slots: %s", (kind) => {
  let store: TestHot;
  let nodeId: string;
  beforeAll(async () => {
    store = await openTestHot(kind);
  });
  afterAll(() => store.hot.close());
  beforeEach(() => {
    nodeId = `N${randomBytes(16).toString("hex")}`;
  });

  const slot = (attemptId = 1): JobAttempt => ({ jobId: newJobId(), attemptId });
  const slots = (count: number) => Array.from({ length: count }, () => slot());
  const reserve = (capacity: number, wanted: WantedSlot[]) =>
    reserveSlots(store.hot, { nodeId, capacity, ttlMs: TTL_MS, wanted });
  const fill = (capacity: number, wanted: JobAttempt[]) =>
    fillSlots(store.hot, { nodeId, capacity, ttlMs: TTL_MS, wanted });
  const renew = (held: JobAttempt[]) =>
    renewSlots(store.hot, { nodeId, ttlMs: TTL_MS, slots: held });
  const free = async (held: JobAttempt[]) => (await freeSlots(store.hot, nodeId, held)).freed;
  const count = () => countSlots(store.hot, nodeId);
  const listed = async () =>
    (await listSlots(store.hot, nodeId)).map(({ jobId, attemptId }) => ({ jobId, attemptId }));

  test("I6: as many as the capacity, and the same slot again is the same slot", async () => {
    const [a, b, c] = slots(3);
    expect(await reserve(2, [a!, b!, c!])).toEqual({
      answers: ["reserved", "reserved", "full"],
      reserved: 2,
    });
    expect(await reserve(2, [a!, c!, b!])).toEqual({
      answers: ["reserved", "full", "reserved"],
      reserved: 2,
    });
    expect([await free([a!]), await free([a!]), await count()]).toEqual([1, 0, 1]);
    expect((await reserve(2, [c!])).answers).toEqual(["reserved"]);
    expect(await hasSlot(store.hot, nodeId, c!)).toBe(true);
    expect(await hasSlot(store.hot, nodeId, { ...c!, attemptId: 2 })).toBe(false);
    expect(await count()).toBe(2);
  });

  test("thousands at once, as a burst brings them", async () => {
    const { answers, reserved } = await reserve(9_999, slots(10_000));
    expect(reserved).toBe(9_999);
    expect(answers.indexOf("full")).toBe(9_999);
  });

  test("a slot that is not renewed expires; a heartbeat renews it", async () => {
    const [kept, left] = slots(2);
    await reserve(2, [kept!, left!]);
    store.advance(TTL_MS - 1);
    expect(await renew([kept!])).toEqual(["renewed"]);
    expect(await reserve(2, [slot()])).toMatchObject({ answers: ["full"] });
    expect(await hasSlot(store.hot, nodeId, left!)).toBe(true);
    store.advance(1);
    expect(await hasSlot(store.hot, nodeId, left!)).toBe(false);
    expect(await count()).toBe(1);
    expect(await listSlots(store.hot, nodeId)).toEqual([{ ...kept, expiresInMs: TTL_MS - 1 }]);
    expect(await renew([left!])).toEqual(["absent"]);
    expect(await reserve(2, [slot()])).toMatchObject({ answers: ["reserved"], reserved: 2 });
  });

  test("a heartbeat racing with the end of a job does not bring its slot back", async () => {
    const held = slots(16);
    await reserve(16, held);
    // Sent at once, in every order there is: what was freed is never there afterwards.
    await Promise.all(held.flatMap((one) => [renew(held), free([one]), renew([one])]));
    expect(await listed()).toEqual([]);
    expect(await renew(held)).toEqual(held.map(() => "absent"));
    expect(await count()).toBe(0);
  });

  test("a heartbeat of an older attempt renews nothing of the newer one", async () => {
    const first = slot(1);
    const second = { ...first, attemptId: 2 };
    await reserve(1, [second]);
    expect(await renew([first, second])).toEqual(["absent", "renewed"]);
    expect(await listed()).toEqual([second]);
  });

  test("a node that registers gets back what it runs, up to its capacity", async () => {
    const [running, alsoRunning, justReserved, tooMany] = slots(4);
    await reserve(3, [running!, justReserved!]);
    expect(await fill(3, [running!, alsoRunning!, tooMany!])).toEqual(["held", "held", "full"]);
    expect(await count()).toBe(3);
    expect(await reserve(3, [slot()])).toMatchObject({ answers: ["full"] });
    expect(await fill(3, [])).toEqual([]);
  });

  test("I6: 64 rivals at capacity 1: never more than one, and none is left", async () => {
    let inUse = 0;
    const ledger: number[] = [];
    await Promise.all(
      slots(64).map(async (mine) => {
        while ((await reserve(1, [mine])).answers[0] !== "reserved");
        ledger.push(++inUse);
        // Others ask while this one is held.
        await count();
        inUse--;
        await free([mine]);
      }),
    );
    expect(ledger).toEqual(Array.from({ length: 64 }, () => 1));
    expect(await count()).toBe(0);
  });

  test("I6: the ledger of many rivals, replayed: in use is what was answered, never above capacity", async () => {
    const capacity = 4;
    const ledger: { answer: "reserved" | "full" | "freed"; inUse: number; job: string }[] = [];
    const rival = async () => {
      for (let round = 0; round < 12; round++) {
        const mine = slots(1 + (round % 3));
        const { answers, reserved } = await reserve(capacity, mine);
        const got = mine.filter((_, index) => answers[index] === "reserved");
        ledger.push({ answer: got.length > 0 ? "reserved" : "full", inUse: reserved, job: "" });
        if (got.length === 0) continue;
        expect(await free(got)).toBe(got.length);
        ledger.push({ answer: "freed", inUse: await count(), job: "" });
      }
    };
    await Promise.all(Array.from({ length: 16 }, rival));
    expect(Math.max(...ledger.map(({ inUse }) => inUse))).toBeLessThanOrEqual(capacity);
    expect(ledger.filter(({ answer }) => answer === "full").every(({ inUse }) => inUse > 0)).toBe(
      true,
    );
    expect(await count()).toBe(0);
  });

  test("the storm guard leaves a node out for one service, on all instances, and only for a while", async () => {
    const report = {
      nodeId,
      service: "asr",
      ttlMs: 60_000,
      windowMs: 10_000,
      reportsMax: 30,
    };
    expect(await markUnavailable(store.hot, report)).toBe("marked");
    expect(await markUnavailable(store.hot, report)).toBe("already");
    const held = slot();
    const wanted = [
      { ...slot(), service: "asr" },
      { ...slot(), service: "tts" },
      held,
      { ...slot(), service: "asr" },
    ];
    expect((await reserve(8, wanted)).answers).toEqual([
      "unavailable",
      "reserved",
      "reserved",
      "unavailable",
    ]);
    // Who has a slot keeps it: the same question gets the same answer.
    expect((await reserve(8, [{ ...held, service: "asr" }])).answers).toEqual(["reserved"]);
    store.advance(60_000);
    expect((await reserve(8, [wanted[0]!])).answers).toEqual(["reserved"]);
    expect(await markUnavailable(store.hot, report)).toBe("marked");
  });

  test("only so many reports of one node mark in a window", async () => {
    const report = (service: string) =>
      markUnavailable(store.hot, {
        nodeId,
        service,
        ttlMs: 60_000,
        windowMs: 10_000,
        reportsMax: 3,
      });
    const answers = await Promise.all(["a", "b", "c", "d", "e"].map(report));
    expect(answers.filter((answer) => answer === "marked")).toHaveLength(3);
    expect(answers.filter((answer) => answer === "limited")).toHaveLength(2);
    store.advance(9_999);
    expect(await report("f")).toBe("limited");
    store.advance(1);
    expect(await report("f")).toBe("marked");
  });

  if (kind !== "memory")
    test("a node that is gone for good leaves no key behind", async () => {
      await reserve(1, slots(1));
      const key = jobKeys.reserved(store.hot.prefix, nodeId);
      const ttlMs = await (store.hot as RedisStore).client.pttl(key);
      expect(ttlMs).toBeGreaterThan(TTL_MS);
    });
});
