import { TenureError } from "@tenure/protocol";
import { failpoint } from "#failpoint";
import type { Clock } from "../kernel/clock.ts";
import { trustedUntil } from "../kernel/lease-trust.ts";
import { type Operation, type OperationResult, settleBatch, toBatch } from "./commit-batch.ts";
import { accessOf, type Entry, type Lane, takeEntries, weigh } from "./signer-queue.ts";
import { ALL_SIGNERS, refusalOf } from "./signer-tenants.ts";
import type {
  Acquired,
  CommitAnswer,
  NonceRules,
  SignerAccess,
  SignerCommit,
} from "./store/nonce-store.ts";

export interface QueueOptions {
  /** Who we are to the lease: the instance and its boot. */
  ownerNode: string;
  leaseTtlMs: number;
  queueMax: number;
  rules: NonceRules;
  clock: Clock;
  commit(request: { commits: SignerCommit[]; waitMs?: number }): Promise<CommitAnswer[]>;
  /** Whether a signer's lease stays with us after a commit. Never in Basic mode. */
  keeps(signer: string): boolean;
  observe: QueueObserver;
}

export interface QueueObserver {
  acquired(signer: string, result: Acquired | "held", formerOwner?: string): void;
  fenced(signer: string, operations: readonly Operation[], fencingToken: number): void;
  committed(batch: { weight: number; expired: number }): void;
  waited(ms: number): void;
}

export interface NonceQueue {
  readonly depth: number;
  /** How many leases are kept here. */
  readonly kept: number;
  submit(
    signer: string,
    operation: Operation,
    waitMs: number,
    access: SignerAccess,
  ): Promise<OperationResult>;
  /** Renews the leases in use and gives back the others. */
  tend(): Promise<void>;
  /** Finishes what waits, then gives every lease back. */
  stop(): Promise<void>;
}

// Statements at once. Few: they leave the pool room for others, and while they are under way the next ones fill.
const COMMITS_MAX = 4;
// At 10,000 busy signers 0.7 of the raw limit with 16 in a statement, 0.9 with 32, no more with 64.
const SIGNERS_PER_COMMIT_MAX = 32;
// Statements that wait for a rival's lock, besides. Short waits, repeated: well below every time limit of the pool.
const PURSUITS_MAX = 4;
const LOCK_WAIT_MAX_MS = 1_000;
const CONTENDED_MS = 1_000;
const HELD_PAUSE_MS = 25;
// A lease unused for so long is given back: whoever is routed to next should not have to wait for it.
const IDLE_MS = 1_000;
const TRUST_MARGIN_SHARE = 0.1;

/**
 * Serial per signer, together in one commit: what comes in while a signer's commit is under way is gathered and
 * becomes its next one. No timer decides how long to gather; the commit itself does.
 *
 * A caller is answered after the commit and never before. A statement whose outcome is unknown ends the term we
 * believed in and is not sent again; the caller asks again under the same request id.
 */
export function createNonceQueue(options: QueueOptions): NonceQueue {
  const { clock, observe, ownerNode, leaseTtlMs, rules } = options;
  const lanes = new Map<string, Lane>();
  const ready = new Set<Lane>();
  const drained = new Set<() => void>();
  let committing = 0;
  let pursuing = 0;
  let depth = 0;
  let scheduled = false;
  let stopping = false;

  function submit(
    signer: string,
    operation: Operation,
    waitMs: number,
    access: SignerAccess,
  ): Promise<OperationResult> {
    const lane = laneOf(signer);
    if (lane.waiting.length >= options.queueMax && operation.kind !== "tend") {
      const full = { queue: `the queue of ${signer}`, limit: options.queueMax };
      return Promise.reject(new TenureError("QUEUE_FULL", full));
    }
    const nowMs = clock.monotonicMs();
    const deadlineMs = nowMs + waitMs;
    return new Promise((resolve, reject) => {
      lane.waiting.push({ operation, access, sinceMs: nowMs, deadlineMs, resolve, reject });
      depth += 1;
      if (!lane.inFlight) ready.add(lane);
      schedule();
    });
  }

  function laneOf(signer: string): Lane {
    let lane = lanes.get(signer);
    if (!lane) {
      const never = Number.NEGATIVE_INFINITY;
      lane = {
        signer,
        waiting: [],
        inFlight: false,
        term: undefined,
        usedAtMs: never,
        contendedUntilMs: never,
      };
      lanes.set(signer, lane);
    }
    return lane;
  }

  /** After what this turn of the event loop brings: requests that came together go together. */
  function schedule(): void {
    if (scheduled) return;
    scheduled = true;
    setImmediate(() => {
      scheduled = false;
      while (committing < COMMITS_MAX && ready.size > 0) startSome();
    });
  }

  function startSome(): void {
    const nowMs = clock.monotonicMs();
    const chosen = [...ready].slice(0, SIGNERS_PER_COMMIT_MAX);
    for (const lane of chosen) {
      ready.delete(lane);
      lane.inFlight = true;
    }
    for (const lane of chosen.filter((lane) => lane.contendedUntilMs > nowMs)) void pursue(lane);
    const calm = chosen.filter((lane) => lane.contendedUntilMs <= nowMs);
    if (calm.length > 0) void commitTogether(calm);
  }

  async function commitTogether(chosen: Lane[]): Promise<void> {
    committing += 1;
    // In one order everywhere: two groups that meet at new signers then never wait for each other in a circle.
    const parts = chosen.sort((a, b) => (a.signer < b.signer ? -1 : 1)).map(takePart);
    try {
      const { answers, sentAtMs } = await send(parts);
      for (const [index, part] of parts.entries()) {
        const answer = answers[index]!;
        if (isFinal(answer)) finish(part, answer, sentAtMs);
        else void pursue(putBack(part), answer);
      }
    } catch (error) {
      for (const part of parts) fail(part, error);
    } finally {
      committing -= 1;
      schedule();
    }
  }

  /** Somebody else is at this signer: waits for the lock, or for the lease, as long as the callers want to. */
  async function pursue(lane: Lane, seen?: CommitAnswer): Promise<void> {
    lane.contendedUntilMs = clock.monotonicMs() + CONTENDED_MS;
    let owner = seen && noteHeld(lane, seen);
    for (;;) {
      if (seen) turnAway(lane, owner);
      if (lane.waiting.length === 0) return free(lane);
      const mayWait = pursuing < PURSUITS_MAX;
      if (seen && (seen.outcome === "held" || !mayWait)) await clock.sleep(HELD_PAUSE_MS);
      const leftMs = Math.ceil(earliest(lane) - clock.monotonicMs());
      const waitMs = Math.min(LOCK_WAIT_MAX_MS, Math.max(1, leftMs));
      const part = takePart(lane);
      pursuing += 1;
      try {
        const { answers, sentAtMs } = await send([part], mayWait ? waitMs : undefined);
        const answer = answers[0]!;
        if (isFinal(answer)) return finish(part, answer, sentAtMs);
        seen = answer;
        owner = noteHeld(lane, answer) ?? owner;
      } catch (error) {
        if (!isLockTimeout(error)) return fail(part, error);
        seen = { outcome: "busy" };
      } finally {
        pursuing -= 1;
      }
      putBack(part);
    }
  }

  async function send(parts: Part[], waitMs?: number) {
    const commits = parts.map(({ commit }) => commit);
    const sentAtMs = clock.monotonicMs();
    await failpoint("nonce.before-send");
    const answers = await options.commit({ commits, ...(waitMs !== undefined && { waitMs }) });
    await failpoint("nonce.before-answer");
    return { answers, sentAtMs };
  }

  interface Part {
    lane: Lane;
    entries: Entry[];
    operations: Operation[];
    commit: SignerCommit;
  }

  function takePart(lane: Lane): Part {
    const nowMs = clock.monotonicMs();
    const entries = takeEntries(lane);
    const operations = entries.map(({ operation }) => operation);
    const isUsed = operations.some(({ kind }) => kind !== "tend");
    if (isUsed) lane.usedAtMs = nowMs;
    const keeps =
      !stopping && options.keeps(lane.signer) && (isUsed || nowMs - lane.usedAtMs < IDLE_MS);
    const commit: SignerCommit = {
      signer: lane.signer,
      ownerNode,
      fencingToken:
        lane.term && nowMs < lane.term.trustedUntilMs ? lane.term.fencingToken : undefined,
      keepMs: keeps ? leaseTtlMs : 0,
      ...accessOf(entries),
      ...toBatch(operations, rules.aheadMax),
    };
    return { lane, entries, operations, commit };
  }

  function putBack({ lane, entries }: Part): Lane {
    lane.waiting.unshift(...entries);
    return lane;
  }

  function finish(part: Part, answer: FinalAnswer, sentAtMs: number): void {
    depth -= part.entries.length;
    if (answer.outcome === "done") settle(part, answer, sentAtMs);
    else if (answer.outcome === "fenced") refuse(part, answer.fencingToken);
    else turnBack(part, answer.outcome);
    free(part.lane);
  }

  /** The signer is not the callers' to write, or does not exist. Our term, if there is one, goes on. */
  function turnBack({ lane, entries, commit }: Part, outcome: "absent" | "foreign"): void {
    if (outcome === "absent") lane.term = undefined;
    for (const { operation, resolve, reject } of entries) {
      if (operation.kind === "tend") resolve({ kind: "tended" });
      else reject(refusalOf(lane.signer, operation, commit));
    }
  }

  function settle(
    { lane, entries, operations, commit }: Part,
    answer: Extract<CommitAnswer, { outcome: "done" }>,
    sentAtMs: number,
  ): void {
    const { fencingToken, acquired, formerOwner, expired } = answer;
    const { keepMs: ttlMs } = commit;
    const marginMs = ttlMs * TRUST_MARGIN_SHARE;
    lane.term =
      ttlMs === 0
        ? undefined
        : {
            fencingToken,
            renewedAtMs: sentAtMs,
            trustedUntilMs: trustedUntil({ sentAtMs, ttlMs, marginMs }),
          };
    if (acquired) observe.acquired(lane.signer, acquired, formerOwner);
    observe.committed({ weight: weigh(operations), expired });
    const nowMs = clock.monotonicMs();
    const results = settleBatch(lane.signer, operations, answer, rules.aheadMax);
    for (const [index, entry] of entries.entries()) {
      const result = results[index]!;
      observe.waited(nowMs - entry.sinceMs);
      if (result instanceof TenureError) entry.reject(result);
      else entry.resolve(result);
    }
  }

  /** We were replaced. The callers are told so; none of it is tried again here under another term. */
  function refuse({ lane, entries, operations, commit }: Part, newestToken: number): void {
    const fencingToken = commit.fencingToken ?? newestToken;
    lane.term = undefined;
    observe.fenced(lane.signer, operations, fencingToken);
    const details = { resource: `signer ${lane.signer}`, fencing_token: fencingToken };
    for (const entry of entries) entry.reject(new TenureError("FENCED", details));
  }

  function fail({ lane, entries }: Part, error: unknown): void {
    lane.term = undefined;
    depth -= entries.length;
    for (const entry of entries) entry.reject(error);
    free(lane);
  }

  /** Those who do not want to wait any longer. Tending can always be done another time. */
  function turnAway(lane: Lane, owner = "another instance"): void {
    const nowMs = clock.monotonicMs();
    const details = { signer: lane.signer, owner_node: owner };
    const left = lane.waiting.filter(({ operation, deadlineMs, reject, resolve }) => {
      if (operation.kind === "tend") resolve({ kind: "tended" });
      else if (deadlineMs <= nowMs) reject(new TenureError("LEASE_HELD", details));
      else return true;
      return false;
    });
    depth -= lane.waiting.length - left.length;
    lane.waiting = left;
  }

  function noteHeld(lane: Lane, answer: CommitAnswer): string | undefined {
    if (answer.outcome !== "held") return undefined;
    lane.term = undefined;
    observe.acquired(lane.signer, "held");
    return answer.ownerNode;
  }

  function free(lane: Lane): void {
    lane.inFlight = false;
    if (lane.waiting.length > 0) ready.add(lane);
    else if (!lane.term) lanes.delete(lane.signer);
    schedule();
    if (depth === 0) for (const wake of drained) wake();
  }

  async function tend(): Promise<void> {
    const nowMs = clock.monotonicMs();
    const due = [...lanes.values()].filter(
      ({ signer, term, inFlight, usedAtMs }) =>
        term &&
        !inFlight &&
        (nowMs - term.renewedAtMs >= leaseTtlMs / 3 ||
          nowMs - usedAtMs >= IDLE_MS ||
          stopping ||
          !options.keeps(signer)),
    );
    await Promise.allSettled(
      due.map(({ signer }) => submit(signer, { kind: "tend" }, 0, ALL_SIGNERS)),
    );
  }

  async function stop(): Promise<void> {
    stopping = true;
    if (depth > 0) {
      await new Promise<void>((resolve) => drained.add(resolve));
    }
    await tend();
  }

  return {
    get depth() {
      return depth;
    },
    get kept() {
      return [...lanes.values()].filter(({ term }) => term).length;
    },
    submit,
    tend,
    stop,
  };
}

type FinalAnswer = Extract<CommitAnswer, { outcome: "done" | "fenced" | "absent" | "foreign" }>;

const isFinal = (answer: CommitAnswer): answer is FinalAnswer =>
  !["busy", "held", "unchecked"].includes(answer.outcome);

const earliest = (lane: Lane): number =>
  Math.min(...lane.waiting.map(({ deadlineMs }) => deadlineMs));

/** The server gave up waiting for the row's lock: the statement did nothing. */
function isLockTimeout(error: unknown): boolean {
  const cause = error instanceof Error ? (error.cause as { code?: string } | undefined) : undefined;
  return cause?.code === "55P03";
}
