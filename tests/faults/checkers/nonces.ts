import type { Findings } from "../workload.ts";
import { createViolations, groupBy, type Operation, type Violations } from "./operations.ts";

export interface AllocateAsk {
  signer: string;
  request_id: string;
  count: number;
}
export interface AllocatedNumber {
  nonce: number;
  hold_id: string;
  fencing_token: number;
}
export interface MarkAsk {
  signer: string;
  nonce: number;
  hold_id: string;
  as: "used" | "recyclable";
  tx_hash?: string;
}

export interface NonceStores {
  allocations: {
    signer: string;
    nonce: number;
    status: string;
    hold_id: string;
    tx_hash: string | null;
  }[];
  requests: { signer: string; request_id: string; n: number; nonce: number; hold_id: string }[];
  cursors: { signer: string; next_nonce: number }[];
}

export type Allocate = Operation<AllocateAsk, AllocatedNumber[]>;
export type Mark = Operation<MarkAsk, unknown>;

/** A number in somebody's hands, with all that is known of when. */
interface Hold {
  signer: string;
  nonce: number;
  holdId: string;
  requestId: string;
  /** When its request was first made, and when somebody was first told. */
  askedNs: number;
  toldNs: number;
}

/** I9: no number has two live holds, a used one never comes back, and the numbers are dense from the start. */
export function checkNonces(
  allocates: readonly Allocate[],
  marks: readonly Mark[],
  stores: NonceStores,
): Findings {
  const violations = createViolations();
  const holds = holdsOf(allocates, violations);
  const marksByHold = groupBy(marks, ({ asked }) => asked.hold_id);
  checkRivals(holds, marksByHold, violations);
  checkStores(holds, marksByHold, stores, violations);
  const dense = checkDense(stores, violations);
  const tokens = groupBy(
    allocates.filter(({ type }) => type === "ok"),
    ({ asked }) => asked.signer,
  );
  return {
    checked: allocates.length + marks.length,
    violations: violations.all,
    reached: {
      numbers: dense,
      repeated_requests: countRepeats(allocates),
      reused_numbers:
        holds.length - new Set(holds.map((hold) => `${hold.signer} ${hold.nonce}`)).size,
      unknown_outcomes: [...allocates, ...marks].filter(({ type }) => type === "info").length,
      changes_of_term: [...tokens.values()].reduce((sum, own) => sum + countTerms(own) - 1, 0),
      foreign_marks_refused: marks.filter(({ type }) => type === "fail").length,
    },
  };
}

const countTerms = (allocates: readonly Allocate[]): number =>
  new Set(allocates.flatMap(({ answered }) => answered.map((number) => number.fencing_token))).size;

function countRepeats(allocates: readonly Allocate[]): number {
  const answered = allocates.filter(({ type }) => type === "ok");
  return answered.length - new Set(answered.map(({ asked }) => keyOf(asked))).size;
}

const keyOf = ({ signer, request_id }: { signer: string; request_id: string }): string =>
  `${signer} ${request_id}`;

/** The holds that callers received. One request has one answer, however often it is sent. */
function holdsOf(allocates: readonly Allocate[], violations: Violations): Hold[] {
  const holds: Hold[] = [];
  for (const [key, asks] of groupBy(allocates, ({ asked }) => keyOf(asked))) {
    const answers = asks.filter(({ type }) => type === "ok");
    const [first] = answers;
    if (!first) continue;
    const said = (numbers: AllocatedNumber[]) =>
      numbers.map(({ nonce, hold_id }) => `${nonce}/${hold_id}`).join(" ");
    for (const { answered } of answers)
      if (said(answered) !== said(first.answered))
        violations.add(`${key} was answered ${said(first.answered)}, then ${said(answered)}`);
    const times = {
      askedNs: Math.min(...asks.map(({ startNs }) => startNs)),
      toldNs: Math.min(...answers.map(({ endNs }) => endNs)),
    };
    const { signer, request_id } = first.asked;
    for (const { nonce, hold_id } of first.answered)
      holds.push({ signer, nonce, holdId: hold_id, requestId: request_id, ...times });
  }
  return holds;
}

/** Two holds of one number: the one must have been given back before the other can have been made. */
function checkRivals(
  holds: readonly Hold[],
  marks: ReadonlyMap<string, Mark[]>,
  violations: Violations,
): void {
  for (const rivals of groupBy(holds, ({ signer, nonce }) => `${signer} ${nonce}`).values()) {
    for (const [index, one] of rivals.entries())
      for (const other of rivals.slice(index + 1))
        if (one.holdId === other.holdId)
          violations.add(`${one.signer}: hold ${one.holdId} went to two requests`);
        else if (!mayFollow(one, other, marks) && !mayFollow(other, one, marks))
          violations.add(
            `${one.signer}: number ${one.nonce} was held by ${one.requestId} and ${other.requestId} at once`,
          );
  }
}

/** Whether `later` can have got the number that `earlier` had: given back in time, and never used. */
function mayFollow(earlier: Hold, later: Hold, marks: ReadonlyMap<string, Mark[]>): boolean {
  const own = marks.get(earlier.holdId) ?? [];
  const wasUsed = own.some(({ asked, type }) => asked.as === "used" && type === "ok");
  const wasGivenBack = own.some(
    ({ asked, type, startNs }) =>
      asked.as === "recyclable" && type !== "fail" && startNs < later.toldNs,
  );
  return wasGivenBack && !wasUsed;
}

function checkStores(
  holds: readonly Hold[],
  marks: ReadonlyMap<string, Mark[]>,
  { allocations, requests }: NonceStores,
  violations: Violations,
): void {
  const rows = new Map(allocations.map((row) => [`${row.signer} ${row.nonce}`, row]));
  const recorded = new Map(requests.map((row) => [row.hold_id, row]));
  for (const hold of holds) {
    const { signer, nonce, holdId, requestId } = hold;
    const record = recorded.get(holdId);
    if (record?.nonce !== nonce || record.request_id !== requestId)
      violations.add(`${signer}: the answer to ${requestId}, number ${nonce}, is not recorded`);
    const own = marks.get(holdId) ?? [];
    const used = own.find(({ asked, type }) => asked.as === "used" && type === "ok");
    const mayBeUsed = own.some(({ asked, type }) => asked.as === "used" && type !== "fail");
    const mayBeFree = own.some(({ asked, type }) => asked.as === "recyclable" && type !== "fail");
    const row = rows.get(`${signer} ${nonce}`);
    const isOurs = row?.hold_id === holdId;
    if (!row) violations.add(`${signer}: number ${nonce} of ${requestId} is gone`);
    else if (used && (row.status !== "CONSUMED" || !isOurs || row.tx_hash !== used.asked.tx_hash))
      violations.add(
        `${signer}: number ${nonce} was used by ${requestId} and is ${row.status} with ${row.tx_hash}`,
      );
    else if (isOurs && row.status === "CONSUMED" && !mayBeUsed)
      violations.add(`${signer}: number ${nonce} of ${requestId} was used by somebody else`);
    else if (!mayBeFree && !isOurs)
      violations.add(`${signer}: number ${nonce} of ${requestId} belongs to another hold`);
  }
}

/** Every number from 0 on is there once, and the cursor stands behind the last. */
function checkDense({ allocations, cursors }: NonceStores, violations: Violations): number {
  for (const { signer, next_nonce } of cursors) {
    const numbers = allocations.filter((row) => row.signer === signer).map(({ nonce }) => nonce);
    const present = new Set(numbers);
    if (present.size !== numbers.length) violations.add(`${signer}: a number is there twice`);
    for (let nonce = 0; nonce < next_nonce; nonce++)
      if (!present.has(nonce)) violations.add(`${signer}: number ${nonce} is missing`);
    if (Math.max(-1, ...numbers) >= next_nonce)
      violations.add(`${signer}: a number lies beyond the cursor ${next_nonce}`);
  }
  return allocations.length;
}
