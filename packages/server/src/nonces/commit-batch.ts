import { TenureError } from "@tenure/protocol";
import { judgeMark, type MarkEvent } from "./nonce.ts";
import type {
  AllocatedNonce,
  CommitAnswer,
  Mark,
  NonceRow,
  SignerCommit,
} from "./store/nonce-store.ts";

/** A caller's request about one signer. */
export type Operation =
  | { kind: "allocate"; requestId: string; holdIds: string[] }
  | ({ kind: "mark"; event: MarkEvent } & Mark)
  | { kind: "raise"; nextNonce: number; confirmed: boolean }
  /** Writes nothing of its own: the commit expires holds, and renews the lease or gives it back. */
  | { kind: "tend" };

export type OperationResult =
  | { kind: "allocated"; nonces: AllocatedNonce[] }
  | { kind: "marked"; row: NonceRow }
  | { kind: "raised"; nextNonce: number }
  | { kind: "tended" };

export type Batch = Pick<SignerCommit, "marks" | "asks" | "nextNonce" | "raiseMax">;

/** The one write that several operations become. A raise is always alone. */
export function toBatch(operations: readonly Operation[], aheadMax: number): Batch {
  const raise = operations.find((operation) => operation.kind === "raise");
  return {
    marks: operations.filter((operation) => operation.kind === "mark"),
    asks: operations
      .filter((operation) => operation.kind === "allocate")
      .flatMap(({ requestId, holdIds }) => holdIds.map((holdId, n) => ({ requestId, n, holdId }))),
    nextNonce: raise?.nextNonce,
    raiseMax: raise?.confirmed ? undefined : aheadMax,
  };
}

/** The result of each operation, in their order; an error where the write refused it. */
export function resultsOf(
  signer: string,
  operations: readonly Operation[],
  answer: Extract<CommitAnswer, { outcome: "done" }>,
  aheadMax: number,
): (OperationResult | TenureError)[] {
  const byRequest = groupByRequest(answer.asks);
  let markIndex = 0;
  function resultOf(operation: Operation): OperationResult | TenureError {
    switch (operation.kind) {
      case "allocate":
        return allocateResult(signer, operation, byRequest.get(operation.requestId), aheadMax);
      case "mark":
        return markResult(signer, operation, answer.marks[markIndex++]);
      case "raise":
        return raiseResult(signer, operation, { ...answer, aheadMax });
      case "tend":
        return { kind: "tended" };
    }
  }
  return operations.map(resultOf);
}

/** The count of numbers and marks that an operation adds to a commit. */
export function weightOf(operation: Operation): number {
  return operation.kind === "allocate" ? operation.holdIds.length : 1;
}

export function weigh(operations: readonly Operation[]): number {
  return operations.reduce((sum, operation) => sum + weightOf(operation), 0);
}

function groupByRequest(asks: readonly AllocatedNonce[]): Map<string, AllocatedNonce[]> {
  const groups = new Map<string, AllocatedNonce[]>();
  for (const ask of asks) {
    const group = groups.get(ask.requestId);
    if (group) group.push(ask);
    else groups.set(ask.requestId, [ask]);
  }
  return groups;
}

function allocateResult(
  signer: string,
  { requestId, holdIds }: { requestId: string; holdIds: string[] },
  nonces: AllocatedNonce[] | undefined,
  aheadMax: number,
): OperationResult | TenureError {
  if (!nonces) {
    const queue = `numbers of ${signer} above its oldest open gap`;
    return new TenureError("QUEUE_FULL", { queue, limit: aheadMax });
  }
  if (nonces.length !== holdIds.length)
    return new TenureError("REQUEST_ID_REUSED", { request_id: requestId });
  return { kind: "allocated", nonces };
}

function markResult(
  signer: string,
  mark: Mark,
  row: NonceRow | undefined,
): OperationResult | TenureError {
  const found = row && { status: row.status, holdId: row.hold_id, txHash: row.tx_hash };
  switch (judgeMark(mark, found)) {
    case "done":
      return { kind: "marked", row: row! };
    case "absent":
      return new TenureError("NOT_FOUND", { what: `nonce of ${signer}`, id: String(mark.nonce) });
    case "other_hold":
      return new TenureError("HOLD_MISMATCH", { signer, nonce: mark.nonce });
    case "refused":
      return new TenureError("CONFLICT", {
        reason: `nonce ${mark.nonce} of ${signer} is ${row!.status}${row!.tx_hash ? ` by ${row!.tx_hash}` : ""}`,
      });
  }
}

function raiseResult(
  signer: string,
  { nextNonce: wanted, confirmed }: { nextNonce: number; confirmed: boolean },
  found: { firstNonce: number; nextNonce: number; aheadMax: number },
): OperationResult | TenureError {
  const { firstNonce, nextNonce, aheadMax } = found;
  if (wanted < firstNonce)
    return new TenureError("CONFLICT", {
      reason: `the next nonce of ${signer} is ${firstNonce} and is never lowered`,
    });
  if (!confirmed && wanted - firstNonce > aheadMax)
    return new TenureError("CONFIRMATION_REQUIRED", {
      reason: `raising ${signer} from ${firstNonce} to ${wanted} skips ${wanted - firstNonce} nonces, more than ahead_max (${aheadMax}), and cannot be undone`,
    });
  return { kind: "raised", nextNonce };
}
