import { type Operation, type OperationResult, weightOf } from "./commit-batch.ts";
import { ALL_SIGNERS } from "./signer-tenants.ts";
import type { SignerAccess } from "./store/nonce-store.ts";

/** One caller and what it asked for. */
export interface Entry {
  operation: Operation;
  access: SignerAccess;
  sinceMs: number;
  /** Until when the caller waits for somebody else's lease. */
  deadlineMs: number;
  resolve(result: OperationResult): void;
  reject(error: unknown): void;
}

/** A lease we believe to hold. Believing saves work only: every write names the token and is checked. */
export interface Term {
  fencingToken: number;
  renewedAtMs: number;
  trustedUntilMs: number;
}

/** One signer's line of callers. */
export interface Lane {
  readonly signer: string;
  waiting: Entry[];
  inFlight: boolean;
  term: Term | undefined;
  usedAtMs: number;
  /** Met a rival lately: the next commit waits for the lock at once instead of finding it taken first. */
  contendedUntilMs: number;
}

const WEIGHT_MAX = 512;

/** The next commit's share of the line, in order: what one access covers. */
export function takeEntries(lane: Lane): Entry[] {
  const marked = new Set<number>();
  const asked = new Map<string, number>();
  let weight = 0;
  let count = 0;
  const common = accessOf(lane.waiting);
  for (const { operation, access } of lane.waiting) {
    if (operation.kind !== "tend" && !isSameAccess(access, common)) break;
    if (dependsOnEarlier(operation, { marked, asked })) break;
    if (operation.kind === "raise" && count > 0) break;
    weight += weightOf(operation);
    if (count > 0 && weight > WEIGHT_MAX) break;
    if (operation.kind === "mark") marked.add(operation.nonce);
    if (operation.kind === "allocate") asked.set(operation.requestId, operation.holdIds.length);
    count += 1;
    // Alone in its commit: it settles every open number below it, and may be done where nothing else is allowed.
    if (operation.kind === "raise") break;
  }
  return lane.waiting.splice(0, count);
}

/** What must see the outcome of an earlier one goes into the next commit: a number's second mark, a reused id. */
function dependsOnEarlier(
  operation: Operation,
  { marked, asked }: { marked: Set<number>; asked: Map<string, number> },
): boolean {
  if (operation.kind === "mark") return marked.has(operation.nonce);
  if (operation.kind !== "allocate") return false;
  return (asked.get(operation.requestId) ?? operation.holdIds.length) !== operation.holdIds.length;
}

/** The access of the first caller; `tend` is ours and goes with any. */
export function accessOf(entries: readonly Entry[]): SignerAccess {
  const first = entries.find(({ operation }) => operation.kind !== "tend");
  return first?.access ?? ALL_SIGNERS;
}

const isSameAccess = (a: SignerAccess, b: SignerAccess): boolean =>
  a.tenant === b.tenant && a.opensIn === b.opensIn;

export function weigh(operations: readonly Operation[]): number {
  return operations.reduce((sum, operation) => sum + weightOf(operation), 0);
}
