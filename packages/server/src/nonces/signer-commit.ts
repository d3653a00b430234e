import { TenureError } from "@tenure/protocol";
import { trustedUntil } from "../kernel/lease-trust.ts";
import type { Telemetry } from "../telemetry.ts";
import { type Operation, resultsOf, toBatch, weigh } from "./commit-batch.ts";
import type { LeaseEvents } from "./nonce-events.ts";
import { accessOf, type Entry, type SignerQueue, takeEntries } from "./signer-queue.ts";
import { refusalOf } from "./signer-tenants.ts";
import type { CommitAnswer, NonceRules, SignerCommit } from "./store/nonce-store.ts";

/** The entries of one signer that are being committed, and the commit they became. */
export interface PendingCommit {
  queue: SignerQueue;
  entries: Entry[];
  operations: Operation[];
  commit: SignerCommit;
}

export interface CommitContext {
  /** The owner of the leases: the instance and its boot. */
  ownerNode: string;
  leaseTtlMs: number;
  rules: NonceRules;
  /** Whether a signer's lease stays here after a commit. Never in Basic mode. */
  keeps(signer: string): boolean;
  telemetry: Pick<
    Telemetry,
    "leaseAcquired" | "fenceRefused" | "nonceBatchSize" | "nonceHoldsExpired" | "nonceQueueSeconds"
  >;
  events: LeaseEvents;
}

export type FinalAnswer = Extract<
  CommitAnswer,
  { outcome: "done" | "fenced" | "absent" | "foreign" }
>;

/** Whether the commit ended. Otherwise nothing was written and it can be sent again. */
export const isFinal = (answer: CommitAnswer): answer is FinalAnswer =>
  !["busy", "held", "unchecked"].includes(answer.outcome);

// An unused lease is given back after this time, so that an instance that the signer is routed to next need not wait.
export const IDLE_MS = 1_000;
const TRUST_MARGIN_SHARE = 0.1;

export function takeCommit(
  queue: SignerQueue,
  { ownerNode, leaseTtlMs, rules, ...context }: CommitContext,
  nowMs: number,
): PendingCommit {
  const entries = takeEntries(queue);
  const operations = entries.map(({ operation }) => operation);
  const isUsed = operations.some(({ kind }) => kind !== "tend");
  if (isUsed) queue.usedAtMs = nowMs;
  const { signer, term } = queue;
  const keeps = context.keeps(signer) && (isUsed || nowMs - queue.usedAtMs < IDLE_MS);
  const commit: SignerCommit = {
    signer,
    ownerNode,
    fencingToken: term && nowMs < term.trustedUntilMs ? term.fencingToken : undefined,
    keepMs: keeps ? leaseTtlMs : 0,
    ...accessOf(entries),
    ...toBatch(operations, rules.aheadMax),
  };
  return { queue, entries, operations, commit };
}

export function returnEntries({ queue, entries }: PendingCommit): SignerQueue {
  queue.waiting.unshift(...entries);
  return queue;
}

/** Answers the callers of a commit that ended. */
export function answerCallers(
  pending: PendingCommit,
  answer: FinalAnswer,
  context: CommitContext,
  times: { sentAtMs: number; nowMs: number },
): void {
  if (answer.outcome === "done") answerDone(pending, answer, context, times);
  else if (answer.outcome === "fenced") answerFenced(pending, answer.fencingToken, context);
  else answerRefused(pending, answer.outcome);
}

function answerDone(
  { queue, entries, operations, commit }: PendingCommit,
  answer: Extract<CommitAnswer, { outcome: "done" }>,
  { rules, telemetry, events }: CommitContext,
  { sentAtMs, nowMs }: { sentAtMs: number; nowMs: number },
): void {
  const { fencingToken, acquired, formerOwner, expired } = answer;
  const { keepMs: ttlMs } = commit;
  const trustedUntilMs = trustedUntil({ sentAtMs, ttlMs, marginMs: ttlMs * TRUST_MARGIN_SHARE });
  queue.term = ttlMs === 0 ? undefined : { fencingToken, renewedAtMs: sentAtMs, trustedUntilMs };
  if (acquired) telemetry.leaseAcquired.inc({ result: acquired });
  if (acquired === "taken_over") events.takenOver(queue.signer, formerOwner);
  const weight = weigh(operations);
  if (weight > 0) telemetry.nonceBatchSize.observe(weight);
  if (expired > 0) telemetry.nonceHoldsExpired.inc(expired);
  const results = resultsOf(queue.signer, operations, answer, rules.aheadMax);
  for (const [index, entry] of entries.entries()) {
    const result = results[index]!;
    telemetry.nonceQueueSeconds.observe((nowMs - entry.sinceMs) / 1_000);
    if (result instanceof TenureError) entry.reject(result);
    else entry.resolve(result);
  }
}

/** Another instance has the lease. The callers get FENCED; nothing is sent again here under another term. */
function answerFenced(
  { queue, entries, operations, commit }: PendingCommit,
  newestToken: number,
  { telemetry, events }: CommitContext,
): void {
  const { signer } = queue;
  const fencingToken = commit.fencingToken ?? newestToken;
  queue.term = undefined;
  for (const operation of operations) {
    const op = operation.kind === "mark" ? operation.event : operation.kind;
    telemetry.fenceRefused.inc({ op });
  }
  events.fenced(signer, fencingToken, operations.length);
  const details = { resource: `signer ${signer}`, fencing_token: fencingToken };
  for (const entry of entries) entry.reject(new TenureError("FENCED", details));
}

/** The signer does not exist or belongs to another tenant. A term of this instance continues. */
function answerRefused(
  { queue, entries, commit }: PendingCommit,
  outcome: "absent" | "foreign",
): void {
  if (outcome === "absent") queue.term = undefined;
  for (const { operation, resolve, reject } of entries) {
    if (operation.kind === "tend") resolve({ kind: "tended" });
    else reject(refusalOf(queue.signer, operation, commit));
  }
}

/** The statement failed and its outcome is unknown: the term ends, and the callers retry under the same request id. */
export function rejectCallers({ queue, entries }: PendingCommit, error: unknown): void {
  queue.term = undefined;
  for (const entry of entries) entry.reject(error);
}
