import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { HOT_STORES, openTestHot } from "../../../testing/hot-stores.ts";
import { newJobId } from "../../../testing/jobs.ts";
import { createManualClock } from "../../../testing/manual-clock.ts";
import { silentLog } from "../../kernel/log.ts";
import type { HotStore } from "../../store/hot-store.ts";
import { createConnections, type SessionConnection } from "../memory/connections.ts";
import { listUndelivered } from "../store/undelivered-store.ts";
import { ResultDelivery } from "./result-delivery.ts";

describe.each(HOT_STORES)("results of a session: %s", (kind) => {
  let hot: HotStore;
  beforeAll(async () => {
    hot = (await openTestHot(kind)).hot;
  });
  afterAll(() => hot.close());

  test("a client that never acknowledges costs a bounded number of entries; the rest are in its set", async () => {
    const connections = createConnections();
    const session: SessionConnection = {
      sessionId: "0123456789abcdef0123456789abcdef",
      tenant: "default",
      epoch: 1,
      link: { send() {}, sendText() {}, unsentBytes: () => 0, whenDrained() {} },
    };
    connections.addSession(session);
    const clock = createManualClock();
    const results = new ResultDelivery(
      {
        hot,
        instanceId: "i1",
        connections,
        log: silentLog,
        clock,
        send: async () => ({ outcome: "sent", id: "1-0" }),
        storeClock: {
          nowMs: () => clock.wallMs(),
          read: async () => clock.wallMs(),
          lastOutageMs: () => Number.NEGATIVE_INFINITY,
        },
        settings: { retentionMs: 60_000 },
      },
      { unackedMax: 300 },
    );
    const jobIds = Array.from({ length: 301 }, () => newJobId());
    const delivered = jobIds.map((jobId) =>
      results.deliver({
        jobId,
        tenant: "default",
        requestId: jobId,
        attemptId: 1,
        outcome: "succeeded",
        result: "{}",
        isEvicted: false,
        sessionId: session.sessionId,
        originInstanceId: "i1",
        listeners: [],
      }),
    );
    // The oldest need no further look by any instance.
    expect(await Promise.all(delivered.slice(0, 256))).toEqual(Array(256).fill("out"));
    const listed = await listUndelivered(hot, session.sessionId, 1_000);
    expect(listed.toSorted()).toEqual(jobIds.slice(0, 256).toSorted());
    expect(results.isAwaited(session.sessionId, jobIds[255]!)).toBe(false);
    expect(results.isAwaited(session.sessionId, jobIds[256]!)).toBe(true);
  });
});
