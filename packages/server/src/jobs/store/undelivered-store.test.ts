import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { HOT_STORES, openTestHot, type TestHot } from "../../../testing/hot-stores.ts";
import { newJobId } from "../../../testing/jobs.ts";
import { addRecent, listRecent, RECENT_MAX } from "./recent-store.ts";
import {
  ackUndelivered,
  addUndelivered,
  listUndelivered,
  UNDELIVERED_MAX,
} from "./undelivered-store.ts";

const KEEP_MS = 3_600_000;

describe.each(HOT_STORES)("undelivered results and recent jobs: %s", (kind) => {
  let store: TestHot;
  let sessionId: string;
  beforeAll(async () => {
    store = await openTestHot(kind);
  });
  afterAll(() => store.hot.close());
  beforeEach(() => {
    sessionId = randomBytes(16).toString("hex");
  });

  const add = (jobIds: string[]) =>
    addUndelivered(store.hot, sessionId, jobIds, { keepMs: KEEP_MS });

  test("a result is listed until its session has it, the oldest first", async () => {
    const [first, second, third] = [newJobId(), newJobId(), newJobId()];
    await add([second!]);
    store.advance(1);
    await add([first!]);
    store.advance(1);
    await add([third!, second!]);
    expect(await listUndelivered(store.hot, sessionId, 10)).toEqual([second, first, third]);
    expect(await listUndelivered(store.hot, sessionId, 2)).toEqual([second, first]);
    expect(await ackUndelivered(store.hot, sessionId, [second!, third!])).toBe(2);
    expect(await ackUndelivered(store.hot, sessionId, [second!])).toBe(0);
    expect(await listUndelivered(store.hot, sessionId, 10)).toEqual([first]);
    expect(await listUndelivered(store.hot, "f".repeat(32), 10)).toEqual([]);
  });

  test("a session that never comes back does not fill the store", async () => {
    const jobs = Array.from({ length: UNDELIVERED_MAX }, (_, n) => newJobId(n));
    expect(await add(jobs)).toBe(0);
    store.advance(1);
    const late = [newJobId(), newJobId()];
    expect(await add(late)).toBe(2);
    const listed = await listUndelivered(store.hot, sessionId, UNDELIVERED_MAX + 10);
    expect(listed).toHaveLength(UNDELIVERED_MAX);
    expect(listed.slice(-2).sort()).toEqual(late.sort());
  });

  test("recent jobs come newest first, page by page, each tenant its own, and are bounded", async () => {
    const start = Date.now();
    const jobs = Array.from({ length: RECENT_MAX + 5 }, (_, n) => ({
      jobId: newJobId(start + n),
      tenant: n % 1_000 === 7 ? "rare" : "default",
    }));
    await addRecent(store.hot, jobs, { keepMs: KEEP_MS });
    const newest = jobs.map(({ jobId }) => jobId).reverse();
    expect(await listRecent(store.hot, { limit: 3 })).toEqual(newest.slice(0, 3));
    expect(await listRecent(store.hot, { limit: 3, before: newest[2]! })).toEqual(
      newest.slice(3, 6),
    );
    const rare = jobs.filter(({ tenant }) => tenant === "rare").map(({ jobId }) => jobId);
    expect(await listRecent(store.hot, { tenant: "rare", limit: 50 })).toEqual(rare.reverse());
    expect(await listRecent(store.hot, { tenant: "nobody", limit: 50 })).toEqual([]);
    const all = await listRecent(store.hot, { limit: 2 * RECENT_MAX });
    expect(all).toEqual(newest.slice(0, RECENT_MAX));
  });
});
