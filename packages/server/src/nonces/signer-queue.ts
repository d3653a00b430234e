import { TenureError } from "@tenure/protocol";
import { type Operation, type OperationResult, weightOf } from "./commit-batch.ts";
import { ALL_SIGNERS } from "./signer-tenants.ts";
import type { SignerAccess } from "./store/nonce-store.ts";

/** One caller and its request. */
export interface Entry {
  operation: Operation;
  access: SignerAccess;
  sinceMs: number;
  /** Until when the caller waits for a lease of another instance. */
  deadlineMs: number;
  resolve(result: OperationResult): void;
  reject(error: unknown): void;
}

/** A lease that this instance believes to hold. The belief only saves work: each write names the token and is checked. */
export interface Term {
  fencingToken: number;
  renewedAtMs: number;
  trustedUntilMs: number;
}

/**
 * The callers of one signer and the lease kept for it.
 *
 * - One commit at a time: while `inFlight`, the entries of that commit are not in `waiting`, and new ones queue up behind.
 * - An entry is answered once, after its commit. Entries whose commit did nothing return to the front, in their order.
 * - `term` is undefined after an answer that ends it (held, fenced, absent) and after a failed statement, whose outcome
 *   is unknown.
 */
export interface SignerQueue {
  readonly signer: string;
  waiting: Entry[];
  inFlight: boolean;
  term: Term | undefined;
  usedAtMs: number;
  /** Another instance used the signer a moment ago: the next commit waits for the row's lock at once. */
  contendedUntilMs: number;
}

export function createSignerQueue(signer: string): SignerQueue {
  const never = Number.NEGATIVE_INFINITY;
  return {
    ...{ signer, waiting: [], inFlight: false, term: undefined },
    ...{ usedAtMs: never, contendedUntilMs: never },
  };
}

const WEIGHT_MAX = 512;

/** Removes the entries of the next commit, in order: those that one access covers and that do not depend on each other. */
export function takeEntries(queue: SignerQueue): Entry[] {
  const marked = new Set<number>();
  const asked = new Map<string, number>();
  let weight = 0;
  let count = 0;
  const common = accessOf(queue.waiting);
  for (const { operation, access } of queue.waiting) {
    if (operation.kind !== "tend" && !isSameAccess(access, common)) break;
    if (dependsOnEarlier(operation, { marked, asked })) break;
    if (operation.kind === "raise" && count > 0) break;
    weight += weightOf(operation);
    if (count > 0 && weight > WEIGHT_MAX) break;
    if (operation.kind === "mark") marked.add(operation.nonce);
    if (operation.kind === "allocate") asked.set(operation.requestId, operation.holdIds.length);
    count += 1;
    // A raise has a commit of its own: it closes every open number below it, and is allowed where nothing else is.
    if (operation.kind === "raise") break;
  }
  return queue.waiting.splice(0, count);
}

/** A number's second mark and a reused request id must see the outcome of the first: they go into the next commit. */
function dependsOnEarlier(
  operation: Operation,
  { marked, asked }: { marked: Set<number>; asked: Map<string, number> },
): boolean {
  if (operation.kind === "mark") return marked.has(operation.nonce);
  if (operation.kind !== "allocate") return false;
  return (asked.get(operation.requestId) ?? operation.holdIds.length) !== operation.holdIds.length;
}

/** The access of the first caller. `tend` is this instance's own and fits any. */
export function accessOf(entries: readonly Entry[]): SignerAccess {
  const first = entries.find(({ operation }) => operation.kind !== "tend");
  return first?.access ?? ALL_SIGNERS;
}

const isSameAccess = (a: SignerAccess, b: SignerAccess): boolean =>
  a.tenant === b.tenant && a.opensIn === b.opensIn;

/** Answers LEASE_HELD to callers whose wait is over; upkeep is dropped, it can be done later. Returns how many ended. */
export function rejectExpired(queue: SignerQueue, nowMs: number, owner: string): number {
  const details = { signer: queue.signer, owner_node: owner };
  const left = queue.waiting.filter(({ operation, deadlineMs, reject, resolve }) => {
    if (operation.kind === "tend") resolve({ kind: "tended" });
    else if (deadlineMs <= nowMs) reject(new TenureError("LEASE_HELD", details));
    else return true;
    return false;
  });
  const ended = queue.waiting.length - left.length;
  queue.waiting = left;
  return ended;
}

export const earliestDeadline = ({ waiting }: SignerQueue): number =>
  Math.min(...waiting.map(({ deadlineMs }) => deadlineMs));
