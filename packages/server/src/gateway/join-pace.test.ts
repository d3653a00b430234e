import { isTenureError, type TenureError } from "@tenure/protocol";
import { withDatabase } from "@tenure/testing/fleet/deployments";
import { connectRawNode } from "@tenure/testing/fleet/raw-node";
import { expect, test } from "vitest";
import { openApp, openAppDatabase } from "../../testing/apps.ts";
import { createManualClock } from "../../testing/manual-clock.ts";
import { JoinPace, UNFINISHED_MAX } from "./join-pace.ts";

function scene(unfinishedMax: number) {
  const clock = createManualClock(1_000_000);
  const lines: { refused: number }[] = [];
  let refused = 0;
  const pace = new JoinPace({
    ...{ clock, unfinishedMax },
    log: { warn: (fields: { refused: number }) => lines.push(fields) } as never,
    onRefused: () => {
      refused += 1;
    },
  });
  const ends: (() => void)[] = [];
  const join = () => pace.run(() => new Promise<void>((resolve) => ends.push(resolve)));
  const waitMs = async () => {
    const error: unknown = await join().catch((thrown) => thrown);
    expect(isTenureError(error, "RATE_LIMITED")).toBe(true);
    return (error as TenureError & { details: { retry_after_ms: number } }).details.retry_after_ms;
  };
  return { clock, lines, refused: () => refused, join, ends, waitMs };
}

test("newcomers above the limit are asked to come back one after another, with a line per window", async () => {
  const { clock, lines, refused, join, waitMs } = scene(2);
  void join();
  void join();
  const waits: number[] = [];
  for (let count = 0; count < 1_000; count++) waits.push(await waitMs());
  expect(waits[0]).toBe(500);
  expect(waits).toEqual(waits.toSorted((a, b) => a - b));
  expect(waits.at(-1)).toBeGreaterThan(9_000);
  expect(waits.at(-1)).toBeLessThanOrEqual(60_000);
  expect(refused()).toBe(1_000);
  expect(lines.map((line) => line.refused)).toEqual([1]);
  clock.advance(10_000);
  await waitMs();
  expect(lines.map((line) => line.refused)).toEqual([1, 1_000]);
});

test("the waits follow the pace at which joins finish, and a finished join makes room, also a failed one", async () => {
  const { clock, join, ends, waitMs } = scene(100);
  const joins = Array.from({ length: 100 }, join);
  const slow = async (gapMs: number) => {
    clock.advance(gapMs);
    ends.shift()!();
    await joins.shift();
    joins.push(join());
  };
  for (let count = 0; count < 100; count++) await slow(40);
  const first = await waitMs();
  expect((await waitMs()) - first).toBeGreaterThan(35);
  for (let count = 0; count < 100; count++) await slow(2);
  const later = await waitMs();
  expect((await waitMs()) - later).toBeLessThan(5);
});

test("a join that fails makes room", async () => {
  const pace = new JoinPace({
    ...{ clock: createManualClock(), unfinishedMax: 1, onRefused() {} },
    log: {} as never,
  });
  for (let count = 0; count < 3; count++)
    await expect(pace.run(() => Promise.reject(new Error("no")))).rejects.toThrow("no");
});

test("beyond the limit a newcomer is refused, and let in when the others are; connected nodes keep their presence", async () => {
  const database = await openAppDatabase();
  const app = await openApp(database.uri);
  const connected = await connectRawNode({ url: app.url });
  await connected.register();
  const newcomers = await Promise.all(
    Array.from({ length: UNFINISHED_MAX }, () => connectRawNode({ url: app.url })),
  );
  await withDatabase(database.uri, async (db) => {
    // A join writes an event; a renewal does not.
    await db.query("begin");
    await db.query("lock table event in access exclusive mode");
    const joined = Promise.all(newcomers.map((node) => node.register()));
    const oneMore = await connectRawNode({ url: app.url });
    await connected.heartbeat(1); // the registrations before it were read
    oneMore.register().catch(() => {});
    expect(await oneMore.receive("error")).toMatchObject({
      code: "RATE_LIMITED",
      retryable: true,
      retry_after_ms: expect.any(Number),
    });
    expect((await oneMore.closed).code).toBe(1013);
    expect((await connected.heartbeat(2)).presence_ok).toBe(true);
    await db.query("rollback");
    expect(await joined).toHaveLength(UNFINISHED_MAX);
  });
  const late = await connectRawNode({ url: app.url });
  await late.register();
  const { body } = await app.ask("GET", "/metrics");
  expect(String(body)).toMatch(/^tenure_nodes_refused_total [1-9]/m);
  for (const node of [late, connected, ...newcomers]) await node.close();
  await app.stop();
  await database.drop();
}, 60_000);
