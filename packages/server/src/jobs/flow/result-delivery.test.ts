import { until } from "@tenure/testing/until";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { HOT_STORES, openTestHot } from "../../../testing/hot-stores.ts";
import { newJobId } from "../../../testing/jobs.ts";
import { createManualClock } from "../../../testing/manual-clock.ts";
import { silentLog } from "../../kernel/log.ts";
import type { HotStore } from "../../store/hot-store.ts";
import type { JobEnd } from "../job.ts";
import { createConnections, type SessionConnection } from "../memory/connections.ts";
import { addUndelivered, listUndelivered } from "../store/undelivered-store.ts";
import { type Announced, ResultDelivery } from "./result-delivery.ts";

describe.each(HOT_STORES)("results of a session: %s", (kind) => {
  let hot: HotStore;
  beforeAll(async () => {
    hot = (await openTestHot(kind)).hot;
  });
  afterAll(() => hot.close());

  const link = { send() {}, sendText() {}, unsentBytes: () => 0, whenDrained() {} };
  const sessionOf = (sessionId: string): SessionConnection => ({
    ...{ sessionId, tenant: "default", epoch: 1, link },
  });
  const endOf = (jobId: string, sessionId: string): JobEnd => ({
    ...{ jobId, tenant: "default", requestId: jobId, attemptId: 1 },
    ...{ outcome: "succeeded", result: "{}", isEvicted: false, sessionId },
    ...{ originInstanceId: "i1", listeners: [] },
  });
  function openResults(limits = {}) {
    const connections = createConnections();
    const clock = createManualClock();
    const storeClock = {
      nowMs: () => clock.wallMs(),
      read: async () => clock.wallMs(),
      lastOutageMs: () => Number.NEGATIVE_INFINITY,
    };
    const parts = {
      ...{ hot, instanceId: "i1", connections, log: silentLog, clock, storeClock },
      send: async () => ({ outcome: "sent", id: "1-0" }) as const,
      sendIf: async () => ({ outcome: "skipped" }) as const,
      settings: { retentionMs: 60_000 },
    };
    return { connections, results: new ResultDelivery(parts, limits) };
  }

  test("a client that never acknowledges costs a bounded number of entries; the rest are in its set", async () => {
    const { connections, results } = openResults({ unackedMax: 300 });
    const session = sessionOf("0123456789abcdef0123456789abcdef");
    connections.addSession(session);
    const jobIds = Array.from({ length: 301 }, () => newJobId());
    const delivered = jobIds.map((jobId) => results.deliver(endOf(jobId, session.sessionId)));
    // The oldest need no further look by any instance.
    expect(await Promise.all(delivered.slice(0, 256))).toEqual(Array(256).fill("out"));
    const listed = await listUndelivered(hot, session.sessionId, 1_000);
    expect(listed.toSorted()).toEqual(jobIds.slice(0, 256).toSorted());
    expect(results.isAwaited(session.sessionId, jobIds[255]!)).toBe(false);
    expect(results.isAwaited(session.sessionId, jobIds[256]!)).toBe(true);
  });

  test("a session that connects while its result is announced gets it after the set has it", async () => {
    const { connections, results } = openResults();
    const sent: string[] = [];
    const session: SessionConnection = {
      ...sessionOf("fedcba9876543210fedcba9876543210"),
      link: { ...link, sendText: (text: string) => void sent.push(text) },
    };
    let resolve: (announced: Announced) => void = () => {};
    const announced = new Promise<Announced>((done) => {
      resolve = done;
    });
    const jobId = newJobId();
    const delivered = results.deliver(endOf(jobId, session.sessionId), { announced });
    connections.addSession(session);
    const keepMs = 60_000;
    await addUndelivered(hot, session.sessionId, [jobId], { keepMs });
    expect(sent).toEqual([]);
    resolve("noted");
    await until(() => sent.length === 1, { what: "the result" });
    results.acked(session, jobId);
    expect(await delivered).toBe("out");
    const isGone = async () => (await listUndelivered(hot, session.sessionId, 10)).length === 0;
    await until(isGone, { what: "an empty set" });
  });
});
