import { randomUUID } from "node:crypto";
import { until } from "@tenure/testing/until";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openServer, type TestDb } from "../../testing/databases.ts";
import type { Done } from "../../testing/nonces.ts";
import { asks, commit, commitDone, LEASE_TTL_MS, withMistake } from "../../testing/nonces.ts";
import { sql } from "../store/sql.ts";

// Several sessions at once, on a real server: who waits for whom is Postgres' own doing here.

let store: TestDb;
beforeAll(async () => {
  store = await openServer({ poolMax: 16, statementTimeoutMs: 60_000 });
});
afterAll(() => store.close());
const newSigner = () => `race-${randomUUID()}`;
/** Whoever waits for a lock here gets it, however slow the machine is. */
const PATIENT = { waitMs: 50_000 };

describe("a statement that waited for the lease's lock", () => {
  /** Owner a's write under token 1 waits behind somebody; meanwhile its lease runs out. */
  async function writeThatWaited(): Promise<string> {
    const signer = newSigner();
    await commitDone(store.db, { signer, ownerNode: "a/1", keepMs: LEASE_TTL_MS });
    let write: ReturnType<typeof commit> | undefined;
    await store.db.transaction(async (tx) => {
      await tx.query(sql`select from signer_lease where signer = ${signer} for update`);
      const late = {
        signer,
        ownerNode: "a/1",
        fencingToken: 1,
        keepMs: LEASE_TTL_MS,
        asks: asks(),
      };
      write = commit(store.db, late, PATIENT);
      await until(() => isAnybodyWaiting(), { what: "the write to wait for the lock" });
      await store.advance(LEASE_TTL_MS + 1);
    });
    return (await write!).outcome;
  }

  test("I10: judges the lease by the time it goes on", async () => {
    expect(await writeThatWaited()).toBe("fenced");
  });

  test("would not, with the clock read before the lock", async () => {
    const mistakes = [
      ["  v_now := tenure_now();\n\n", "\n"],
      ["  -- The lock. ", "  v_now := tenure_now();\n  -- "],
    ] as const;
    expect(await withMistake(store.db, mistakes, writeThatWaited)).toBe("done");
  });

  test("sees what was written while it waited: the same id at many sessions at once is one number", async () => {
    for (let round = 0; round < 5; round++) {
      const signer = newSigner();
      const same = Array.from({ length: 12 }, () =>
        commitDone(store.db, { signer, asks: asks(2, "same") }, PATIENT),
      );
      const answers = (await Promise.all(same)).map((done) => done.asks.map(({ nonce }) => nonce));
      expect(new Set(answers.map(String))).toEqual(new Set(["0,1"]));
    }
  });
});

async function isAnybodyWaiting(): Promise<boolean> {
  const { rows } = await store.db.query<{ waiting: number }>(sql`
    select count(*) as waiting from pg_stat_activity
     where datname = current_database() and wait_event_type = 'Lock' and query like '%nonce_commit%'`);
  return rows[0]!.waiting > 0;
}

const doing = fc.record({
  lease: fc.constantFrom("basic", "basic", "keep", "remembered"),
  count: fc.integer({ min: 0, max: 3 }),
  recycles: fc.boolean(),
  /** An id that others use as well, or nobody. */
  shared: fc.option(fc.nat(5), { nil: undefined }),
});
const script = fc.array(doing, { minLength: 2, maxLength: 6 });
type Doing = typeof doing extends fc.Arbitrary<infer T> ? T : never;

/** Several owners at once; the schedule decides who sends next, Postgres who gets the lock. */
async function rivalry(schedule: fc.Scheduler, scripts: Doing[][]): Promise<void> {
  const signer = newSigner();
  const holds = new Map<string, number>(); // what was handed out and not given back, by hold
  const tokens: number[] = [];
  let newestToken = 0;

  async function owner(ownerNode: string, doings: Doing[]): Promise<void> {
    let own: Done["asks"] = [];
    let term: number | undefined;
    for (const { lease, count, recycles, shared } of doings) {
      await schedule.schedule(Promise.resolve(), `${ownerNode} ${lease}`);
      const back = recycles ? own.splice(0, 1) : [];
      const fencingToken = lease === "remembered" ? term : undefined;
      const knownToken = newestToken;
      const answer = await commit(
        store.db,
        {
          signer,
          ownerNode,
          fencingToken,
          keepMs: lease === "basic" ? 0 : LEASE_TTL_MS,
          asks: asks(count, shared === undefined ? undefined : `${shared}-${count}`),
          marks: back.map(({ nonce, holdId }) => ({ event: "recycle", nonce, holdId })),
        },
        { waitMs: 4_000 },
      );
      if (answer.outcome !== "done") {
        own = [...own, ...back];
        continue;
      }
      // Nobody writes under a term that was known to be over before.
      expect(answer.fencingToken).toBeGreaterThanOrEqual(knownToken);
      newestToken = Math.max(newestToken, answer.fencingToken);
      if (answer.acquired && answer.acquired !== "extended") tokens.push(answer.fencingToken);
      for (const { holdId } of back) holds.delete(holdId);
      if (shared === undefined) own.push(...answer.asks);
      for (const { holdId, nonce } of answer.asks) holds.set(holdId, nonce);
      term = lease === "basic" ? undefined : answer.fencingToken;
      if (lease !== "basic" && count === 2) await store.advance(LEASE_TTL_MS + 1);
    }
  }

  await schedule.waitFor(Promise.all(scripts.map((doings, k) => owner(`o${k}/1`, doings))));
  const { rows } = await store.db.query<{ nonce: number; hold_id: string; status: string }>(
    sql`select nonce, hold_id, status from signer_nonce_allocation where signer = ${signer} order by nonce`,
  );
  expect(rows.map(({ nonce }) => nonce)).toEqual(rows.map((_, index) => index));
  expect(new Set(tokens).size).toBe(tokens.length);
  // Whoever was handed a number and did not give it back still has it, and has it alone.
  for (const [holdId, nonce] of holds) expect(rows[nonce]!.hold_id).toBe(holdId);
}

const property = () =>
  fc.asyncProperty(fc.scheduler(), fc.array(script, { minLength: 3, maxLength: 6 }), rivalry);

test("I9, I10: rivals in any order of sending hand out each number once, under tokens that only rise", async () => {
  await fc.assert(property(), { numRuns: 60 });
});

test("the rivalry catches a lease row that is not locked", async () => {
  const mistakes = [
    [" for update skip locked;", ";"],
    [" for update;", ";"],
  ] as const;
  const found = await withMistake(store.db, mistakes, () =>
    fc.check(property(), { numRuns: 300, endOnFailure: true }),
  );
  expect(found.failed).toBe(true);
  const { name, code } = found.errorInstance as { name: string; code?: string };
  expect(code ?? name).toMatch(/^(AssertionError|23\d\d\d)$/);
});
