import { once } from "node:events";
import { connect } from "node:net";
import { createInterface } from "node:readline";
import { setImmediate as nextTurn } from "node:timers/promises";
import { stores } from "@tenure/testing/stores/stores";
import { until } from "@tenure/testing/until";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { HOT_STORES, openTestHot, openTestPeer } from "../../../testing/hot-stores.ts";
import { newJob, newJobId } from "../../../testing/jobs.ts";
import { openSession } from "../../membership/store/session-store.ts";
import type { HotStore } from "../../store/hot-store.ts";
import type { JobAttempt } from "../job.ts";
import {
  endTurn,
  forgetTurns,
  joinTurn,
  noteTurn,
  placeTurn,
  readTurn,
} from "../turns/turn-store.ts";
import { type BindingCandidate, bind, readBinding } from "./binding-store.ts";
import {
  createJob,
  dropJob,
  type NewJob,
  persistJob,
  readAttempts,
  readJob,
  voidJob,
} from "./job-store.ts";
import { jobKeys } from "./keys.ts";
import { enterRecoveryIndex, leaveRecoveryIndex } from "./recovery-index-store.ts";
import { countSlots, fillSlots, freeSlots, renewSlots, reserveSlots } from "./slot-store.ts";

/** As many as a busy machine does in a few seconds. */
const REQUESTS = 20;
const RIVALS = 64;

// Two clients of one store, as two instances are. In memory there is one: the stories hold there as well.
describe.each(HOT_STORES)("races at two instances: %s", (kind) => {
  let hots: [HotStore, HotStore];
  const made = new Map<string, string[]>();
  beforeAll(async () => {
    const first = await openTestHot(kind);
    hots = [first.hot, kind === "memory" ? first.hot : await openTestPeer(kind, first.hot.prefix)];
  });
  afterAll(() => Promise.all(hots.map((hot) => hot.close())));

  test(`I4: ${RIVALS} submissions of one request id, ${REQUESTS} ids: as many jobs as ids`, async () => {
    for (let n = 0; n < REQUESTS; n++) {
      const requestId = `request-${n}`;
      // The first to bind writes its record last: the others have to follow it.
      const rivals = Array.from({ length: RIVALS }, (_, rival) =>
        submit(hots[rival % 2]!, requestId, Math.max(0, 3 - Math.floor(rival / 4))),
      );
      const answers = await Promise.all(rivals);
      expect(new Set(answers).size).toBe(1);
      const records = await Promise.all(made.get(requestId)!.map((id) => readJob(hots[0], id)));
      const jobs = records.filter((record) => record !== undefined);
      expect(jobs.map(({ jobId, persisted }) => [jobId, persisted])).toEqual([[answers[0], true]]);
      expect(await readBinding(hots[1], jobs[0]!)).toMatchObject({ jobId: answers[0] });
      expect(await leaveRecoveryIndex(hots[0], made.get(requestId)!)).toBe(1);
    }
  }, 120_000);

  /**
   * The steps of a submit. The binding may overtake the record, as on a Cluster where they are on different servers:
   * `late` is by how many round trips.
   */
  async function submit(hot: HotStore, requestId: string, late: number): Promise<string> {
    const job = newJob({ requestId });
    made.set(requestId, [...(made.get(requestId) ?? []), job.jobId]);
    const bound = bind(hot, suitorOf(job));
    for (let trips = 0; trips < late; trips++) await readAttempts(hot, [job]);
    const [created] = await Promise.all([
      createJob(hot, job),
      enterRecoveryIndex(hot, [{ jobId: job.jobId, inMs: 5_000 }]),
    ]);
    const winner = await follow(hot, job, await bound);
    if (winner === job.jobId && created.outcome === "created")
      if ((await persistJob(hot, job.jobId)) === "persisted") return winner;
    await Promise.all([dropJob(hot, job.jobId), leaveRecoveryIndex(hot, [job.jobId])]);
    return winner === job.jobId ? submit(hot, requestId, 0) : winner;
  }

  /** Whose job it is in the end: a binding whose job has no record, and will never get one, is replaced. */
  async function follow(
    hot: HotStore,
    job: NewJob,
    bound: Awaited<ReturnType<typeof bind>>,
  ): Promise<string> {
    if (bound.outcome === "bound") return job.jobId;
    const [winner] = await readAttempts(hot, [bound]);
    if (winner || (await voidJob(hot, bound.jobId)) === "exists") return bound.jobId;
    return follow(hot, job, await bind(hot, suitorOf(job), bound.jobId));
  }

  test("I6: slots under 32 rivals, heartbeats of what has ended, and a node that registers", async () => {
    const nodeId = `N${newJobId()}`;
    const capacity = 4;
    const ever: JobAttempt[] = [];
    const inUse: number[] = [];
    const rival = async (index: number) => {
      const hot = hots[index % 2]!;
      for (let round = 0; round < 8; round++) {
        const wanted = Array.from({ length: 1 + (round % 3) }, () => ({
          jobId: newJobId(),
          attemptId: 1,
        }));
        const about = { nodeId, capacity, ttlMs: 600_000, wanted };
        const { answers, reserved } = await reserveSlots(hot, about);
        const held = wanted.filter((_, at) => answers[at] === "reserved");
        ever.push(...held);
        inUse.push(reserved);
        if (held.length === 0) continue;
        const [freed] = await Promise.all([
          freeSlots(hot, nodeId, held),
          renewSlots(hots[(index + 1) % 2]!, { nodeId, ttlMs: 600_000, slots: ever.slice(-16) }),
        ]);
        expect(freed.freed).toBe(held.length);
      }
    };
    await Promise.all(Array.from({ length: 32 }, (_, index) => rival(index)));
    expect(Math.max(...inUse)).toBe(capacity);
    expect(await countSlots(hots[0], nodeId)).toBe(0);
    const all = { nodeId, capacity, ttlMs: 600_000, wanted: ever };
    const filled = await fillSlots(hots[1], all);
    expect(filled.filter((answer) => answer === "held")).toHaveLength(capacity);
    expect(await countSlots(hots[0], nodeId)).toBe(capacity);
  });

  if (kind === "redis")
    test("I6: the store's own ledger of a node's slots, replayed", async () => {
      const nodeId = `N${newJobId()}`;
      const capacity = 3;
      const ledger = await followKey(jobKeys.reserved(hots[0].prefix, nodeId));
      const rival = async (index: number) => {
        const hot = hots[index % 2]!;
        for (let round = 0; round < 6; round++) {
          const mine = [{ jobId: newJobId(), attemptId: 1 }];
          const wanted = { nodeId, capacity, ttlMs: 600_000, wanted: mine };
          while ((await reserveSlots(hot, wanted)).answers[0] !== "reserved") await nextTurn();
          await freeSlots(hot, nodeId, mine);
        }
      };
      await Promise.all(Array.from({ length: 16 }, (_, index) => rival(index)));
      const last = { jobId: newJobId(), attemptId: 1 };
      await reserveSlots(hots[0], { nodeId, capacity, ttlMs: 600_000, wanted: [last] });
      await until(() => ledger.some(({ slots }) => slots[0]?.startsWith(last.jobId)), {
        what: "the end of the ledger",
      });
      const held = new Set<string>();
      let most = 0;
      for (const { command, slots } of ledger) {
        for (const slot of slots) {
          if (command === "ZADD") held.add(slot);
          else expect(held.delete(slot)).toBe(true);
        }
        most = Math.max(most, held.size);
      }
      expect(most).toBe(capacity);
      expect([...held]).toEqual([`${last.jobId}:1`]);
      expect(ledger.length).toBe(2 * 16 * 6 + 1);
    });

  test("I8: turns of many speakers in bursts at both instances never mix, and leave nothing", async () => {
    const nodes = Array.from({ length: 8 }, (_, n) => String(n + 1).repeat(44));
    const sessions = Array.from({ length: 20 }, (_, n) => n.toString(16).padStart(32, "a"));
    const turns = await Promise.all(sessions.map((sessionId) => speak(sessionId, nodes)));
    const all = turns.flat();
    expect(new Set(all.map(({ turnId }) => turnId)).size).toBe(sessions.length * 3);
    for (const { placed } of all) expect(placed.size).toBe(1);
    for (const { turnId } of all)
      expect(await readTurn(hots[0], turnId)).toMatchObject({ nodeId: undefined, ended: "manual" });
    expect(await forgetTurns(hots[0], [])).toBe(0);
  });

  /** Three turns, each a burst of twenty jobs at both instances at once and then the one that closes it. */
  async function speak(sessionId: string, nodes: string[]) {
    await openSession(hots[0], { sessionId, tenant: "default", resumeToken: "x".repeat(16) });
    const spoken: { turnId: string; placed: Set<string> }[] = [];
    for (let turn = 0; turn < 3; turn++) {
      const burst = await Promise.all(
        Array.from({ length: 20 }, (_, n) =>
          joinAndPlace(sessionId, { n, nodes, finalize: false }),
        ),
      );
      const closing = await joinAndPlace(sessionId, { n: turn, nodes, finalize: true });
      const { turnId } = closing;
      expect(new Set(burst.map((job) => job.turnId))).toEqual(new Set([turnId]));
      spoken.push({ turnId, placed: new Set([...burst, closing].map((job) => job.nodeId)) });
      await endTurn(hots[turn % 2]!, { turnId, sessionId, reason: "manual" });
      await forgetTurns(hots[0], [turnId]);
    }
    return spoken;
  }

  async function joinAndPlace(
    sessionId: string,
    { n, nodes, finalize }: { n: number; nodes: string[]; finalize: boolean },
  ): Promise<{ turnId: string; nodeId: string }> {
    const hot = hots[n % 2]!;
    const ids = { sessionId, jobId: newJobId(), turnId: newJobId() };
    const joined = await joinTurn(hot, { ...ids, finalize });
    if (joined.outcome !== "joined") throw new Error("the session is gone");
    const { turnId } = joined;
    await noteTurn(hot, turnId, 60_000);
    const placed = await placeTurn(hot, { turnId, sessionId, nodeId: nodes[n % nodes.length]! });
    return { turnId, nodeId: placed.nodeId };
  }
});

const suitorOf = ({ jobId, tenant, requestId, bodyHash }: NewJob): BindingCandidate => ({
  jobId,
  tenant,
  requestId,
  bodyHash,
  ttlMs: 60_000,
});

/**
 * Every ZADD and ZREM of one key, in the order in which Redis did them. Read from the socket: a client takes what the other
 * tests do for the answer to something, when it comes with the word that it may listen.
 */
async function followKey(key: string): Promise<{ command: string; slots: string[] }[]> {
  const { hostname, port } = new URL(stores().redisUrl);
  const socket = connect(Number(port), hostname);
  onTestFinished(() => void socket.destroy());
  const lines = createInterface({ input: socket });
  const ledger: { command: string; slots: string[] }[] = [];
  lines.on("line", (line) => {
    const [command, on, ...rest] = [...line.matchAll(/"([^"]*)"/g)].map(([, word]) => word ?? "");
    if (on !== key) return;
    if (command === "ZADD") ledger.push({ command, slots: rest.slice(1) });
    if (command === "ZREM") ledger.push({ command, slots: rest });
  });
  socket.write("MONITOR\r\n");
  const [answer] = await once(lines, "line");
  expect(answer).toBe("+OK");
  return ledger;
}
