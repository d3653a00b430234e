import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { HOT_STORES, openTestHot, type TestHot } from "../../../testing/hot-stores.ts";
import { NODE_A, NODE_B, newJobId } from "../../../testing/jobs.ts";
import { closeSession, openSession, readSession } from "../../membership/store/session-store.ts";
import type { RedisStore } from "../../store/redis.ts";
import {
  endTurn,
  forgetTurns,
  joinTurn,
  leaveTurn,
  noteTurn,
  openTurn,
  placeTurn,
  readTurn,
  takeTurns,
} from "./turn-store.ts";

describe.each(HOT_STORES)("turns: %s", (kind) => {
  let store: TestHot;
  let sessionId: string;
  beforeAll(async () => {
    store = await openTestHot(kind);
  });
  afterAll(() => store.hot.close());
  beforeEach(async () => {
    sessionId = randomBytes(16).toString("hex");
    await openSession(store.hot, { sessionId, tenant: "default", resumeToken: "x".repeat(16) });
  });

  const turnId = newJobId;
  const join = (finalize = false, jobId = newJobId()) =>
    joinTurn(store.hot, { sessionId, jobId, turnId: turnId(), finalize });
  const turnOf = async (finalize = false, jobId = newJobId()): Promise<string> => {
    const joined = await join(finalize, jobId);
    if (joined.outcome !== "joined") throw new Error("the session is gone");
    return joined.turnId;
  };
  const place = (turn: string, nodeId: string) =>
    placeTurn(store.hot, { turnId: turn, sessionId, nodeId });
  const end = (turn: string, reason: "manual" | "timeout") =>
    endTurn(store.hot, { turnId: turn, sessionId, reason });

  test("jobs of a session are in one turn until one closes it; the next begins another", async () => {
    const first = await join();
    expect(first).toMatchObject({ outcome: "joined", begun: true });
    const turn = await turnOf();
    expect(first).toMatchObject({ turnId: turn });
    expect((await readSession(store.hot, sessionId))?.currentTurnId).toBe(turn);
    expect(await turnOf(true)).toBe(turn);
    expect((await readSession(store.hot, sessionId))?.currentTurnId).toBeNull();
    const next = await join();
    expect(next).toMatchObject({ outcome: "joined", begun: true });
    expect(next).not.toMatchObject({ turnId: turn });
  });

  test("two jobs in the same instant are in one turn", async () => {
    const joined = await Promise.all(Array.from({ length: 64 }, () => join()));
    expect(new Set(joined.map((one) => one.outcome === "joined" && one.turnId)).size).toBe(1);
    expect(joined.filter((one) => one.outcome === "joined" && one.begun)).toHaveLength(1);
  });

  test("a job that begins and closes a turn leaves none open", async () => {
    const only = await join(true);
    expect(only).toMatchObject({ outcome: "joined", begun: true });
    expect((await readSession(store.hot, sessionId))?.currentTurnId).toBeNull();
  });

  test("a closing job that joins again gets its turn and leaves the next one alone", async () => {
    await turnOf();
    const closing = newJobId();
    const closed = await turnOf(true, closing);
    const next = await turnOf();
    expect(await turnOf(true, closing)).toBe(closed);
    expect((await readSession(store.hot, sessionId))?.currentTurnId).toBe(next);
    // Also when others have closed theirs meanwhile.
    for (let n = 0; n < 6; n++) await turnOf(true);
    const latest = await turnOf();
    expect(await turnOf(true, closing)).toBe(closed);
    expect((await readSession(store.hot, sessionId))?.currentTurnId).toBe(latest);
  });

  test("a session that is gone gets no turn, and none comes into being", async () => {
    await closeSession(store.hot, sessionId);
    expect(await join()).toEqual({ outcome: "absent" });
    expect(await join(true)).toEqual({ outcome: "absent" });
    expect(await leaveTurn(store.hot, { sessionId })).toBeUndefined();
    expect(await readSession(store.hot, sessionId)).toBeUndefined();
  });

  test("a turn can be read before it has a node, and opening it again changes nothing", async () => {
    const turn = turnId();
    const open = () => openTurn(store.hot, { turnId: turn, sessionId });
    expect(await open()).toBe("open");
    const record = { turnId: turn, sessionId, nodeId: undefined, ended: undefined };
    expect(await readTurn(store.hot, turn)).toEqual(record);
    await place(turn, NODE_A);
    expect(await open()).toBe("open");
    expect(await readTurn(store.hot, turn)).toEqual({ ...record, nodeId: NODE_A });
    await end(turn, "manual");
    expect(await open()).toBe("ended");
    expect(await readTurn(store.hot, turn)).toEqual({ ...record, ended: "manual" });
  });

  test("the first placement decides; a second write does not overwrite", async () => {
    const turn = turnId();
    expect(await readTurn(store.hot, turn)).toBeUndefined();
    expect(await place(turn, NODE_A)).toEqual({ outcome: "placed", nodeId: NODE_A });
    expect(await place(turn, NODE_B)).toEqual({ outcome: "stored", nodeId: NODE_A });
    expect(await place(turn, NODE_A)).toEqual({ outcome: "stored", nodeId: NODE_A });
    expect(await readTurn(store.hot, turn)).toEqual({
      turnId: turn,
      sessionId,
      nodeId: NODE_A,
      ended: undefined,
    });
  });

  test("I8: 64 placements of one turn in the same instant all get one node", async () => {
    const turn = turnId();
    const nodes = Array.from({ length: 64 }, (_, n) => String(n).padStart(44, "A"));
    const placed = await Promise.all(nodes.map((node) => place(turn, node)));
    expect(placed.filter(({ outcome }) => outcome === "placed")).toHaveLength(1);
    expect(new Set(placed.map(({ nodeId }) => nodeId)).size).toBe(1);
  });

  test.each([
    "manual",
    "timeout",
  ] as const)("finalize %s deletes the node, and a late placement does not revive the turn", async (reason) => {
    const turn = await turnOf();
    await place(turn, NODE_A);
    expect(await leaveTurn(store.hot, { sessionId, turnId: turn })).toBe(turn);
    expect(await end(turn, reason)).toBe(true);
    expect(await end(turn, "manual")).toBe(false);
    expect(await place(turn, NODE_B)).toEqual({ outcome: "stored", nodeId: NODE_A });
    expect(await readTurn(store.hot, turn)).toEqual({
      turnId: turn,
      sessionId,
      nodeId: undefined,
      ended: reason,
    });
  });

  test("jobs of a turn that ended before it had a node still go to one, and it stays ended", async () => {
    const turn = turnId();
    await end(turn, "timeout");
    expect(await place(turn, NODE_A)).toEqual({ outcome: "placed", nodeId: NODE_A });
    expect(await place(turn, NODE_B)).toEqual({ outcome: "stored", nodeId: NODE_A });
    expect(await readTurn(store.hot, turn)).toMatchObject({ nodeId: undefined, ended: "timeout" });
  });

  test("a pause that was over too late ends only the turn it was about", async () => {
    const old = await turnOf();
    await turnOf(true);
    const now = await turnOf();
    expect(await leaveTurn(store.hot, { sessionId, turnId: old })).toBeUndefined();
    expect((await readSession(store.hot, sessionId))?.currentTurnId).toBe(now);
    expect(await leaveTurn(store.hot, { sessionId })).toBe(now);
    expect(await leaveTurn(store.hot, { sessionId })).toBeUndefined();
  });

  if (kind !== "memory")
    test("the seed's contract, on the live store", async () => {
      const { client } = store.hot as RedisStore;
      const turn = await turnOf();
      await place(turn, NODE_A);
      const turnKey = `${store.hot.prefix}:scheduler:turn:${turn}`;
      const sessionKey = `${store.hot.prefix}:scheduler:session:${sessionId}`;
      expect(await client.hget(turnKey, "affinity_node_id")).toBe(NODE_A);
      expect(await client.hget(sessionKey, "current_turn_id")).toBe(turn);
      expect([await client.pttl(turnKey), await client.pttl(sessionKey)]).toEqual([-1, -1]);
      const fields = await client.hkeys(turnKey);
      expect(fields).not.toContain("timeout_node_id");
      expect(fields).not.toContain("max_duration_node_id");
      await end(turn, "manual");
      expect(await client.hget(turnKey, "affinity_node_id")).toBeNull();
      expect(await client.pttl(turnKey)).toBeGreaterThan(0);
    });

  test("an open turn is looked at again and again until it is forgotten", async () => {
    const checkInMs = 60_000;
    const [first, second] = [turnId(), turnId()];
    await noteTurn(store.hot, first!, checkInMs);
    store.advance(10);
    await noteTurn(store.hot, second!, checkInMs);
    await noteTurn(store.hot, first!, checkInMs);
    const look = () => takeTurns(store.hot, { countMax: 10, checkInMs });
    expect(await look()).toEqual([]);
    store.advance(checkInMs - 10);
    expect(await look()).toEqual([first]);
    store.advance(10);
    expect(await look()).toEqual([second]);
    expect(await look()).toEqual([]);
    expect(await forgetTurns(store.hot, [first!])).toBe(1);
    store.advance(checkInMs);
    expect(await look()).toEqual([second]);
    expect(await forgetTurns(store.hot, [second!])).toBe(0);
    expect(await forgetTurns(store.hot, [])).toBe(0);
  });
});
