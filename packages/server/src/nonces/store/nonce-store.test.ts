import { randomUUID } from "node:crypto";
import { NONCE_STATUSES } from "@tenure/protocol";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { DATABASES, openTestDb, type TestDb } from "../../../testing/databases.ts";
import {
  asks,
  commit,
  commitDone,
  HOLD_TTL_MS,
  IN_DEFAULT,
  LEASE_TTL_MS,
  RULES,
} from "../../../testing/nonces.ts";
import { sql } from "../../store/sql.ts";
import { NONCE_EVENTS, nextStatus } from "../nonce.ts";
import { commitNonces, forgetOldNonces, signersWithExpiredHolds } from "./nonce-store.ts";
import { listNoncesIn, listStrandedSigners, moveSigner, readSigner } from "./signer-store.ts";
import { checkHistory, confirmHistory } from "./timeline-store.ts";

// What one session can show, on every Postgres we promise to run on. Races are in nonce-races.test.ts.
describe.each(DATABASES)("nonces on %s", (kind) => {
  let store: TestDb;
  beforeAll(async () => {
    store = await openTestDb(kind);
  });
  afterAll(() => store.close());
  const newSigner = () => `eip155:1:0x${randomUUID().replaceAll("-", "")}00000000`;
  const allocate = async (signer: string, count = 1, requestId?: string) =>
    (await commitDone(store.db, { signer, asks: asks(count, requestId) })).asks;

  describe("the lease", () => {
    const keep = (ownerNode: string, signer: string, fencingToken?: number) =>
      commit(store.db, { signer, ownerNode, keepMs: LEASE_TTL_MS, fencingToken, asks: asks() });

    test("absent gives token 1, mine and live is extended, somebody else's is held", async () => {
      const signer = newSigner();
      expect(await keep("a/1", signer)).toMatchObject({ acquired: "new", fencingToken: 1 });
      expect(await keep("a/1", signer)).toMatchObject({ acquired: "extended", fencingToken: 1 });
      expect(await keep("b/1", signer)).toEqual({ outcome: "held", ownerNode: "a/1" });
      // A restarted process is another owner.
      expect(await keep("a/2", signer)).toEqual({ outcome: "held", ownerNode: "a/1" });
    });

    test("expired is taken over under the next token", async () => {
      const signer = newSigner();
      await keep("a/1", signer);
      await store.advance(LEASE_TTL_MS + 1);
      expect(await keep("b/1", signer)).toMatchObject({
        acquired: "taken_over",
        formerOwner: "a/1",
        fencingToken: 2,
      });
    });

    test("given back with the write, it is free for anybody at once", async () => {
      const signer = newSigner();
      await commitDone(store.db, { signer, ownerNode: "a/1", keepMs: 0, asks: asks() });
      expect(await keep("b/1", signer)).toMatchObject({ acquired: "taken", fencingToken: 2 });
    });

    test("I10: a holder that stalls past its lease can no longer write, also before its successor has", async () => {
      const signer = newSigner();
      await keep("a/1", signer);
      await store.advance(LEASE_TTL_MS + 1);
      expect(await keep("a/1", signer, 1)).toMatchObject({ outcome: "fenced" });
      await commitDone(store.db, { signer, ownerNode: "b/1", keepMs: LEASE_TTL_MS });
      expect(await keep("a/1", signer, 1)).toEqual({ outcome: "fenced", fencingToken: 2 });
      expect(await keep("b/1", signer, 2)).toMatchObject({ outcome: "done", nextNonce: 2 });
      // Not even with the right token: it is another owner's.
      expect(await keep("a/1", signer, 2)).toMatchObject({ outcome: "fenced" });
    });

    test("an extended lease lives on from the write, one kept in vain does not", async () => {
      const signer = newSigner();
      await keep("a/1", signer);
      await store.advance(LEASE_TTL_MS - 1_000);
      expect(await keep("a/1", signer, 1)).toMatchObject({ outcome: "done" });
      await store.advance(LEASE_TTL_MS - 1_000);
      expect(await keep("b/1", signer)).toMatchObject({ outcome: "held" });
      expect(await readSigner(store.db, signer, "*")).toMatchObject({ owner_node: "a/1", held: 2 });
      await store.advance(1_001);
      expect(await readSigner(store.db, signer, "*")).toMatchObject({ owner_node: null });
    });
  });

  describe("allocation", () => {
    test("I9: numbers are dense from the start, each with a hold of its own", async () => {
      const signer = newSigner();
      const numbers = [...(await allocate(signer)), ...(await allocate(signer, 3))];
      expect(numbers.map(({ nonce }) => nonce).sort()).toEqual([0, 1, 2, 3]);
      expect(new Set(numbers.map(({ holdId }) => holdId)).size).toBe(4);
      expect(numbers.every(({ status }) => status === "HELD")).toBe(true);
    });

    test("the smallest released number goes first", async () => {
      const signer = newSigner();
      const numbers = await allocate(signer, 5);
      const recycle = numbers
        .filter(({ nonce }) => nonce === 3 || nonce === 1)
        .map(({ nonce, holdId }) => ({
          event: "recycle" as const,
          nonce,
          holdId,
          reason: "unsent",
        }));
      await commitDone(store.db, { signer, marks: recycle });
      expect((await allocate(signer)).map(({ nonce }) => nonce)).toEqual([1]);
      expect((await allocate(signer, 3)).map(({ nonce }) => nonce).sort()).toEqual([3, 5, 6]);
    });

    test("a repeated request id gets its own answer with that hold's state, also after reuse", async () => {
      const signer = newSigner();
      const [first] = await allocate(signer, 1, "pay-1");
      expect(await allocate(signer, 1, "pay-1")).toEqual([first]);
      const { nonce, holdId } = first!;
      await commitDone(store.db, { signer, marks: [{ event: "recycle", nonce, holdId }] });
      expect(await allocate(signer, 1, "pay-1")).toEqual([{ ...first, status: "RELEASED" }]);
      const [second] = await allocate(signer, 1, "pay-2");
      expect(second).toMatchObject({ nonce });
      expect(second!.holdId).not.toBe(holdId);
      expect(await allocate(signer, 1, "pay-1")).toEqual([{ ...first, status: "RELEASED" }]);
      const used = { event: "use" as const, nonce, holdId: second!.holdId, txHash: "0xaa" };
      await commitDone(store.db, { signer, marks: [used] });
      expect(await allocate(signer, 1, "pay-2")).toEqual([{ ...second, status: "CONSUMED" }]);
      expect(await readSigner(store.db, signer, "*")).toMatchObject({ next_nonce: 1 });
    });

    test("the same id twice in one batch is one request, and the cursor moves by one", async () => {
      const signer = newSigner();
      const batch = [...asks(1, "twice"), ...asks(1, "twice"), ...asks(1, "once")];
      const done = await commitDone(store.db, { signer, asks: batch });
      expect(done.asks.map(({ requestId, nonce }) => [requestId, nonce]).sort()).toEqual([
        ["once", 1],
        ["twice", 0],
      ]);
      expect(done.nextNonce).toBe(2);
      expect((await allocate(signer)).map(({ nonce }) => nonce)).toEqual([2]);
    });

    test("several signers in one statement, each with its own outcome", async () => {
      const [free, taken] = [newSigner(), newSigner()];
      await commitDone(store.db, { signer: taken, ownerNode: "b/1", keepMs: LEASE_TTL_MS });
      const commits = [free, taken].map((signer) => ({
        ...{ signer, ownerNode: "a/1", fencingToken: undefined, keepMs: 0 },
        ...{ marks: [], asks: asks(), ...IN_DEFAULT },
      }));
      expect(await commitNonces(store.db, { commits, rules: RULES })).toMatchObject([
        { outcome: "done", nextNonce: 1 },
        { outcome: "held", ownerNode: "b/1" },
      ]);
    });

    test("ahead_max numbers above the oldest gap, and no more; a reused number is no step ahead", async () => {
      const signer = newSigner();
      const rules = { ...RULES, aheadMax: 4 };
      const ask = async (count: number) =>
        (await commitDone(store.db, { signer, asks: asks(count) }, { rules })).asks.map(
          ({ nonce }) => nonce,
        );
      await ask(1);
      await store.advance(HOLD_TTL_MS + 1); // 0 is quarantined with the next write
      expect(await ask(3)).toEqual([1, 2, 3]);
      expect(await ask(2)).toEqual([]); // all of a request or nothing
      expect(await ask(1)).toEqual([4]);
      expect(await ask(1)).toEqual([]);
      await commitDone(store.db, { signer, marks: [{ event: "resolve_released", nonce: 0 }] });
      expect(await ask(2)).toEqual([0, 5]);
    });

    test("the cursor is raised, never lowered", async () => {
      const signer = newSigner();
      expect(await commitDone(store.db, { signer, nextNonce: 57 })).toMatchObject({
        firstNonce: 0,
        nextNonce: 57,
      });
      expect((await allocate(signer)).map(({ nonce }) => nonce)).toEqual([57]);
      expect(await commitDone(store.db, { signer, nextNonce: 5 })).toMatchObject({
        firstNonce: 58,
        nextNonce: 58,
      });
    });

    test("a raise settles a quarantined number far below it instead of stopping at it", async () => {
      const signer = newSigner();
      await allocate(signer);
      await store.advance(HOLD_TTL_MS + 1);
      await commitDone(store.db, { signer }); // 0 is quarantined
      await commitDone(store.db, { signer, nextNonce: 2_000 });
      expect((await allocate(signer)).map(({ nonce }) => nonce)).toEqual([2_000]);
      expect(await readSigner(store.db, signer, "*")).toMatchObject({
        quarantined: 0,
        released: 0,
      });
    });

    test("a server of the former version, whose call has no raiseMax, raises and settles too", async () => {
      const signer = newSigner();
      const [{ nonce, holdId } = { nonce: -1, holdId: "" }] = await allocate(signer, 3);
      await commitDone(store.db, { signer, marks: [{ event: "recycle", nonce, holdId }] });
      const { rows } = await store.db.query<{
        answer: { outcome: string; next_nonce: number };
      }>(sql`
        select nonce_commit(p_signer => ${signer}, p_owner_node => 'old/1', p_fencing_token => null, p_keep_ms => 0,
          p_wait_ms => null, p_hold_ttl_ms => ${HOLD_TTL_MS}::int, p_hold_expiry => 'quarantine', p_ahead_max => 1000,
          p_next_nonce => 5000, p_marks => null, p_asks => null) as answer`);
      expect(rows[0]!.answer).toMatchObject({ outcome: "done", next_nonce: 5_000 });
      expect((await allocate(signer)).map(({ nonce }) => nonce)).toEqual([5_000]);
    });

    test("another tenant's write does nothing, and does not end the term of the signer's owner", async () => {
      const signer = newSigner();
      const inBlue = { tenant: "blue", opensIn: "blue" };
      const { fencingToken } = await commitDone(store.db, {
        ...inBlue,
        ...{ signer, keepMs: LEASE_TTL_MS, asks: asks() },
      });
      for (const given of [{ keepMs: 0 }, { fencingToken }, { ownerNode: "b/1", asks: asks() }])
        expect(await commit(store.db, { signer, ...given })).toEqual({ outcome: "foreign" });
      const { nextNonce } = await commitDone(store.db, {
        ...{ signer, tenant: "blue", fencingToken, keepMs: LEASE_TTL_MS, asks: asks() },
      });
      expect(nextNonce).toBe(2);
    });

    test("a signer that does not exist is opened only in a tenant that the caller names", async () => {
      const signer = newSigner();
      const noOpening = { signer, tenant: "*", opensIn: undefined, asks: asks() };
      expect(await commit(store.db, noOpening)).toEqual({ outcome: "absent" });
      expect(await readSigner(store.db, signer, "*")).toBeUndefined();
      await commitDone(store.db, { ...noOpening, opensIn: "blue" });
      expect(await readSigner(store.db, signer, "blue")).toMatchObject({ tenant: "blue" });
      expect(await readSigner(store.db, signer, "default")).toBeUndefined();
    });

    test("a server of the former version, whose call has no tenant, writes for default only", async () => {
      const call = async (signer: string) => {
        const { rows } = await store.db.query<{ answer: { outcome: string } }>(sql`
          select nonce_commit(p_signer => ${signer}, p_owner_node => 'old/1', p_fencing_token => null, p_keep_ms => 0,
            p_wait_ms => null, p_hold_ttl_ms => ${HOLD_TTL_MS}::int, p_hold_expiry => 'quarantine', p_ahead_max => 1000,
            p_next_nonce => null, p_marks => null, p_asks => null) as answer`);
        return rows[0]!.answer.outcome;
      };
      const [opened, moved] = [newSigner(), newSigner()];
      expect(await call(opened)).toBe("done");
      expect(await readSigner(store.db, opened, "default")).toMatchObject({ next_nonce: 0 });
      await allocate(moved);
      expect(
        await moveSigner(store.db, { signer: moved, from: "blue", to: "red" }),
      ).toBeUndefined();
      expect(await moveSigner(store.db, { signer: moved, from: "*", to: "blue" })).toBe("default");
      expect(await call(moved)).toBe("held");
      expect(await listStrandedSigners(store.db, ["default", "blue"])).toEqual([]);
      expect(await listStrandedSigners(store.db, ["default"])).toMatchObject([
        { tenant: "blue", signers: expect.arrayContaining([moved]) },
      ]);
    });

    test("at the largest number there is no next one", async () => {
      const signer = newSigner();
      await commitDone(store.db, { signer, nextNonce: Number.MAX_SAFE_INTEGER - 1 });
      expect(await allocate(signer, 2)).toEqual([]);
      expect(await allocate(signer, 1)).toMatchObject([{ nonce: Number.MAX_SAFE_INTEGER - 1 }]);
      expect(await allocate(signer, 1)).toEqual([]);
    });
  });

  test("a refused history refuses a server of the former version too, as a database that is away", async () => {
    const signer = newSigner();
    await allocate(signer);
    await store.db.query(sql`update tenure_meta set refused_at = 'infinity'`);
    await expect(allocate(signer)).rejects.toMatchObject(
      kind === "postgres"
        ? { code: "DEPENDENCY_DOWN", details: { reason: "timeline" } }
        : { message: expect.stringContaining("timeline") },
    );
    await store.db.query(sql`update tenure_meta set refused_at = null`);
    expect(await allocate(signer)).toMatchObject([{ nonce: 1 }]);
  });

  test.each([
    "confirmed_at",
    "refused_at",
  ])("%s = 'infinity' written by SQL refuses until an operator confirms, once", async (column) => {
    const signer = newSigner();
    await allocate(signer);
    await store.db.script(`update tenure_meta set ${column} = 'infinity'`);
    expect((await checkHistory(store.db, undefined)).state).toBe("refused");
    await confirmHistory(store.db, undefined);
    expect((await checkHistory(store.db, undefined)).state).toBe("confirmed");
    expect(await allocate(signer)).toMatchObject([{ nonce: 1 }]);
  });

  test("a role that may not read which Postgres this is makes the history unknown, not confirmed", async () => {
    const role = `r_${randomUUID().replaceAll("-", "")}`;
    await store.db.script(`
      create role ${role};
      grant all on all tables in schema public to ${role};
      revoke execute on function pg_control_system() from public`);
    const state = await store.db.transaction(async (tx) => {
      await tx.script(`set local role ${role}`);
      return (await checkHistory(tx, undefined)).state;
    });
    await store.db.script(`drop owned by ${role}; drop role ${role};
      grant execute on function pg_control_system() to public`);
    expect(state).toBe("unknown");
    expect((await checkHistory(store.db, undefined)).state).toBe("confirmed");
  });

  describe("a hold that ran out", () => {
    test("is set aside by the next write, and its own hold may still mark it", async () => {
      const signer = newSigner();
      const [late] = await allocate(signer);
      await store.advance(HOLD_TTL_MS + 1);
      expect(await signersWithExpiredHolds(store.db, 1_000)).toContain(signer);
      expect(await commitDone(store.db, { signer })).toMatchObject({ expired: 1 });
      expect(await signersWithExpiredHolds(store.db, 1_000)).not.toContain(signer);
      expect(await allocate(signer)).toMatchObject([{ nonce: 1 }]);
      const mark = { event: "use" as const, nonce: 0, holdId: late!.holdId, txHash: "0x01" };
      const { marks } = await commitDone(store.db, { signer, marks: [mark] });
      expect(marks).toMatchObject([{ status: "CONSUMED", tx_hash: "0x01" }]);
    });

    test('with hold_expiry = "release" goes back into use', async () => {
      const signer = newSigner();
      await allocate(signer);
      await store.advance(HOLD_TTL_MS + 1);
      const rules = { ...RULES, holdExpiry: "release" as const };
      const { asks: again } = await commitDone(store.db, { signer, asks: asks() }, { rules });
      expect(again).toMatchObject([{ nonce: 0, status: "HELD" }]);
    });
  });

  describe("the schema agrees with the table", () => {
    test.for(
      NONCE_STATUSES.flatMap((status) => NONCE_EVENTS.map((event) => [status, event] as const)),
    )("%s, %s", async ([status, event]) => {
      const { rows } = await store.db.query<{ next: string | null }>(
        sql`select nonce_next(${status}, ${event}) as next`,
      );
      expect(rows[0]!.next).toBe(nextStatus(status, event));
    });
  });

  test("I9: no statement takes a consumed number back, lowers a cursor or a token", async () => {
    const signer = newSigner();
    const [{ nonce, holdId } = { nonce: -1, holdId: "" }] = await allocate(signer, 1);
    const marks = [{ event: "use" as const, nonce, holdId, txHash: "0x1" }];
    await commitDone(store.db, { signer, marks });
    const refused = { code: "23000" };
    await expect(
      store.db.query(
        sql`update signer_nonce_allocation set status = 'HELD' where signer = ${signer}`,
      ),
    ).rejects.toMatchObject(refused);
    await expect(
      store.db.query(
        sql`update signer_nonce_state set next_local_nonce = 0 where signer = ${signer}`,
      ),
    ).rejects.toMatchObject(refused);
    await expect(
      store.db.query(sql`update signer_lease set fencing_token = 0 where signer = ${signer}`),
    ).rejects.toMatchObject(refused);
  });

  test("used up numbers are forgotten after a week, answers after 30 days, in bounded steps", async () => {
    const signer = newSigner();
    const numbers = await allocate(signer, 3, "old");
    const marks = numbers.map(({ nonce, holdId }) => ({
      ...{ event: "use" as const, nonce, holdId, txHash: `0x${nonce}` },
    }));
    await commitDone(store.db, { signer, marks: marks.slice(0, 2) });
    await store.advance(8 * 86_400_000);
    while (await forgetOldNonces(store.db, 1));
    const page = { signer, fromNonce: 0, limit: 10 };
    expect(await listNoncesIn(store.db, { ...page, status: "CONSUMED" })).toEqual([]);
    const answered = await allocate(signer, 3, "old");
    expect(answered.map(({ status }) => status).sort()).toEqual([
      "CONSUMED",
      "CONSUMED",
      "QUARANTINED",
    ]);
    expect(await allocate(signer)).toMatchObject([{ nonce: 3 }]);
    await store.advance(30 * 86_400_000);
    while (await forgetOldNonces(store.db, 100));
    expect(await allocate(signer, 1, "old")).toMatchObject([{ nonce: 4 }]);
  });
});
