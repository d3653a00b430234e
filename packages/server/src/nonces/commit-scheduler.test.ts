import { randomUUID } from "node:crypto";
import { TenureError } from "@tenure/protocol";
import { until } from "@tenure/testing/until";
import fc from "fast-check";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { openServer, type TestDb } from "../../testing/databases.ts";
import { armFailpoint, disarmAll } from "../../testing/failpoints.js";
import { createManualClock } from "../../testing/manual-clock.ts";
import { commit, commitDone, IN_DEFAULT, LEASE_TTL_MS, RULES } from "../../testing/nonces.ts";
import { systemClock } from "../kernel/clock.ts";
import type { Db } from "../store/db.ts";
import { sql } from "../store/sql.ts";
import { createTelemetry } from "../telemetry.ts";
import type { Operation, OperationResult } from "./commit-batch.ts";
import { CommitScheduler, type SchedulerOptions } from "./commit-scheduler.ts";
import { type CommitAnswer, commitNonces, type SignerCommit } from "./store/nonce-store.ts";
import { readSigner } from "./store/signer-store.ts";

let store: TestDb;
beforeAll(async () => {
  store = await openServer({ poolMax: 16 });
});
afterAll(() => store.close());
afterEach(disarmAll);

const newSigner = () => `queue-${randomUUID()}`;
const allocate = (requestId: string = randomUUID()): Operation => ({
  kind: "allocate",
  requestId,
  holdIds: [randomUUID()],
});
const noncesOf = (result: OperationResult): number[] =>
  result.kind === "allocated" ? result.nonces.map(({ nonce }) => nonce) : [];
const codeOf = (error: unknown): string =>
  error instanceof TenureError ? error.code : String(error);

interface Seen {
  commits: SignerCommit[];
  fenced: number;
}

function openQueue(given: Partial<SchedulerOptions> = {}) {
  const seen: Seen = { commits: [], fenced: 0 };
  const queue = new CommitScheduler({
    ownerNode: "a/1",
    leaseTtlMs: LEASE_TTL_MS,
    queueMax: 2_000,
    rules: RULES,
    clock: systemClock,
    async commit(request) {
      seen.commits.push(...request.commits);
      return commitNonces(store.db, { ...request, rules: RULES });
    },
    keeps: () => false,
    telemetry: createTelemetry(),
    events: {
      takenOver() {},
      fenced(_signer, _token, writes) {
        seen.fenced += writes;
      },
    },
    ...given,
  });
  return { queue, seen };
}

describe("requests that arrive during a commit", () => {
  test("requests of one signer become one commit after it", async () => {
    const { queue, seen } = openQueue();
    const signer = newSigner();
    let letGo = () => {};
    armFailpoint("nonce.before-send", () => new Promise<void>((resolve) => (letGo = resolve)));
    const first = queue.submit(signer, allocate(), 2_000, IN_DEFAULT);
    await until(() => queue.depth === 1 && letGo.name !== "letGo", { what: "the first commit" });
    const others = Array.from({ length: 50 }, () =>
      queue.submit(signer, allocate(), 2_000, IN_DEFAULT),
    );
    disarmAll();
    letGo();
    const numbers = (await Promise.all([first, ...others])).flatMap(noncesOf);
    expect(numbers).toEqual(Array.from({ length: 51 }, (_, k) => k));
    expect(seen.commits.map(({ asks }) => asks.length)).toEqual([1, 50]);
    expect(queue.depth).toBe(0);
  });

  test("a repeated request gets the same number; a second mark of a number waits for the next commit", async () => {
    const { queue } = openQueue();
    const signer = newSigner();
    const twice = [
      queue.submit(signer, allocate("same"), 2_000, IN_DEFAULT),
      queue.submit(signer, allocate("same"), 2_000, IN_DEFAULT),
    ];
    const [first, second] = await Promise.all(twice);
    expect(first).toEqual(second);
    const { nonce, holdId } =
      first!.kind === "allocated" ? first!.nonces[0]! : { nonce: -1, holdId: "" };
    const mark = (holdId: string, txHash: string) =>
      queue
        .submit(signer, { kind: "mark", event: "use", nonce, holdId, txHash }, 2_000, IN_DEFAULT)
        .then(() => "done", codeOf);
    const marks = [
      mark(randomUUID(), "0x1"),
      mark(holdId, "0x1"),
      mark(holdId, "0x1"),
      mark(holdId, "0x2"),
    ];
    expect(await Promise.all(marks)).toEqual(["HOLD_MISMATCH", "done", "done", "CONFLICT"]);
  });

  test("requests beyond queue_max get QUEUE_FULL, and the others are answered", async () => {
    const { queue } = openQueue({ queueMax: 5 });
    const signer = newSigner();
    const all = Array.from({ length: 8 }, () =>
      queue.submit(signer, allocate(), 2_000, IN_DEFAULT).then(noncesOf, codeOf),
    );
    expect((await Promise.all(all)).map(String)).toEqual([
      "0",
      "1",
      "2",
      "3",
      "4",
      "QUEUE_FULL",
      "QUEUE_FULL",
      "QUEUE_FULL",
    ]);
  });

  test("requests of other signers share the statement, each under its own lease", async () => {
    const { queue, seen } = openQueue();
    const signers = Array.from({ length: 40 }, newSigner);
    const results = await Promise.all(
      signers.map((signer) => queue.submit(signer, allocate(), 2_000, IN_DEFAULT)),
    );
    expect(results.flatMap(noncesOf)).toEqual(signers.map(() => 0));
    expect(seen.commits).toHaveLength(40);
  });
});

describe("a lease of another instance", () => {
  test("the caller waits for the lease, then LEASE_HELD names its owner", async () => {
    const signer = newSigner();
    await commitDone(store.db, { signer, ownerNode: "b/1", keepMs: LEASE_TTL_MS });
    const { queue } = openQueue();
    const refusal = await queue
      .submit(signer, allocate(), 60, IN_DEFAULT)
      .catch((error: unknown) => error);
    expect(refusal).toMatchObject({ code: "LEASE_HELD", details: { signer, owner_node: "b/1" } });
    const patient = queue.submit(signer, allocate(), 10_000, IN_DEFAULT);
    const back = { signer, ownerNode: "b/1", fencingToken: 1, keepMs: 0 };
    await commitDone(store.db, back, { waitMs: 4_000 });
    expect(noncesOf(await patient)).toEqual([0]);
  });

  test("the caller waits for the row lock while another instance writes", async () => {
    const signer = newSigner();
    const { queue } = openQueue();
    await queue.submit(signer, allocate(), 2_000, IN_DEFAULT);
    let patient: Promise<OperationResult> | undefined;
    await store.db.transaction(async (tx) => {
      await tx.query(sql`select from signer_lease where signer = ${signer} for update`);
      expect(await queue.submit(signer, allocate(), 1, IN_DEFAULT).catch(codeOf)).toBe(
        "LEASE_HELD",
      );
      patient = queue.submit(signer, allocate(), 10_000, IN_DEFAULT);
    });
    expect(noncesOf(await patient!)).toEqual([1]);
  });
});

describe("a kept lease", () => {
  const kept = (clock = createManualClock()) => ({
    clock,
    ...openQueue({ clock, keeps: () => true }),
  });

  test("a kept lease is named by every write, renewed with it, and given back when idle", async () => {
    const signer = newSigner();
    const { queue, seen, clock } = kept();
    await queue.submit(signer, allocate(), 2_000, IN_DEFAULT);
    await queue.submit(signer, allocate(), 2_000, IN_DEFAULT);
    expect(seen.commits.map(({ fencingToken }) => fencingToken)).toEqual([undefined, 1]);
    expect(await readSigner(store.db, signer, "*")).toMatchObject({
      owner_node: "a/1",
      fencing_token: 1,
    });
    await queue.tend();
    expect(await readSigner(store.db, signer, "*")).toMatchObject({ owner_node: "a/1" });
    clock.advance(2_000);
    await queue.tend();
    expect(await readSigner(store.db, signer, "*")).toMatchObject({
      owner_node: null,
      fencing_token: 1,
    });
  });

  test("a kept lease is given back at stop, after the waiting callers are answered", async () => {
    const signer = newSigner();
    const { queue } = kept();
    await queue.submit(signer, allocate(), 2_000, IN_DEFAULT);
    const last = queue.submit(signer, allocate(), 2_000, IN_DEFAULT);
    await queue.stop();
    expect(noncesOf(await last)).toEqual([1]);
    expect(await readSigner(store.db, signer, "*")).toMatchObject({ owner_node: null });
  });

  test("I10: a kept lease is trusted from when its renewal was sent, and acquired again after that", async () => {
    const signer = newSigner();
    const { queue, seen, clock } = kept();
    // The answer comes late: most of the lease is gone by then.
    armFailpoint("nonce.before-answer", () => clock.advance(LEASE_TTL_MS * 0.8));
    await queue.submit(signer, allocate(), 60_000, IN_DEFAULT);
    disarmAll();
    clock.advance(LEASE_TTL_MS * 0.15);
    await queue.submit(signer, allocate(), 60_000, IN_DEFAULT);
    expect(seen.commits.map(({ fencingToken }) => fencingToken)).toEqual([undefined, undefined]);
  });

  test("I10: callers of a lease that was taken over get FENCED, and their writes are not retried", async () => {
    const signer = newSigner();
    const { queue, seen } = kept();
    await queue.submit(signer, allocate(), 2_000, IN_DEFAULT);
    await store.advance(LEASE_TTL_MS + 1);
    await commitDone(store.db, { signer, ownerNode: "b/1", keepMs: LEASE_TTL_MS });
    const late = Array.from({ length: 3 }, () =>
      queue.submit(signer, allocate(), 50, IN_DEFAULT).catch(codeOf),
    );
    expect(await Promise.all(late)).toEqual(["FENCED", "FENCED", "FENCED"]);
    expect(seen.fenced).toBe(3);
    expect(await queue.submit(signer, allocate(), 0, IN_DEFAULT).catch(codeOf)).toBe("LEASE_HELD");
    expect(await readSigner(store.db, signer, "*")).toMatchObject({
      next_nonce: 1,
      owner_node: "b/1",
    });
  });
});

// Commits that fail before they are durable, at any of them. What was answered must be there.
async function faultyRun(faults: boolean[], commitWith: CommitWith): Promise<void> {
  const signer = newSigner();
  let index = 0;
  const { queue } = openQueue({
    commit: (request) => commitWith(store.db, request, faults[index++ % faults.length] ?? false),
  });
  const holds = new Map<string, string>();
  for (let round = 0; round < faults.length; round++) {
    const requests = [randomUUID(), randomUUID()];
    const results = await Promise.allSettled(
      requests.map((requestId) => queue.submit(signer, allocate(requestId), 2_000, IN_DEFAULT)),
    );
    for (const result of results) {
      if (result.status !== "fulfilled" || result.value.kind !== "allocated") continue;
      for (const { nonce, holdId } of result.value.nonces) {
        expect(holds.has(String(nonce)), `nonce ${nonce} was handed out twice`).toBe(false);
        holds.set(String(nonce), holdId);
      }
    }
  }
  const { rows } = await store.db.query<{ nonce: number; hold_id: string }>(
    sql`select nonce, hold_id from signer_nonce_allocation where signer = ${signer}`,
  );
  const stored = new Map(rows.map(({ nonce, hold_id }) => [String(nonce), hold_id]));
  for (const [nonce, holdId] of holds) expect(stored.get(nonce)).toBe(holdId);
}

type CommitWith = (
  db: Db,
  request: Parameters<SchedulerOptions["commit"]>[0],
  fails: boolean,
) => Promise<CommitAnswer[]>;

const lost = () =>
  new TenureError("DEPENDENCY_DOWN", { dependency: "postgres", reason: "planted" });

const afterCommit: CommitWith = (db, request, fails) =>
  db.transaction(async (tx) => {
    const answers = await commitNonces(tx, { ...request, rules: RULES });
    if (fails) throw lost();
    return answers;
  });

const beforeCommit: CommitWith = (db, request, fails) =>
  new Promise((answer, refuse) => {
    db.transaction(async (tx) => {
      answer(await commitNonces(tx, { ...request, rules: RULES }));
      if (fails) throw lost();
    }).catch(refuse);
  });

describe("a caller is answered after the commit", () => {
  const property = (commitWith: CommitWith) =>
    fc.asyncProperty(fc.array(fc.boolean(), { minLength: 2, maxLength: 8 }), (faults) =>
      faultyRun(faults, commitWith),
    );

  test("I9: an answered number is in the database, even if commits fail", async () => {
    await fc.assert(property(afterCommit), { numRuns: 25 });
  });

  test("the property fails for a scheduler that answers before the commit", async () => {
    const found = await fc.check(property(beforeCommit), { numRuns: 50, endOnFailure: true });
    expect(found.failed).toBe(true);
  });
});

test("a failed statement ends the trusted term, and the same request id resolves it", async () => {
  const signer = newSigner();
  let fails = false;
  const tokens: (number | undefined)[] = [];
  const { queue } = openQueue({
    keeps: () => true,
    async commit(request) {
      tokens.push(...request.commits.map(({ fencingToken }) => fencingToken));
      const answers = await commitNonces(store.db, { ...request, rules: RULES });
      if (fails) throw lost(); // the commit is done; its reply is lost
      return answers;
    },
  });
  await queue.submit(signer, allocate("first"), 2_000, IN_DEFAULT);
  fails = true;
  expect(await queue.submit(signer, allocate("lost"), 2_000, IN_DEFAULT).catch(codeOf)).toBe(
    "DEPENDENCY_DOWN",
  );
  fails = false;
  expect(noncesOf(await queue.submit(signer, allocate("lost"), 2_000, IN_DEFAULT))).toEqual([1]);
  expect(await commit(store.db, { signer, ownerNode: "b/1" })).toMatchObject({ outcome: "held" });
  expect(tokens).toEqual([undefined, 1, undefined]);
});
