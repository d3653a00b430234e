import type { NonceStatus } from "@tenure/protocol";
import { type MarkEvent, nextStatus } from "../src/nonces/nonce.ts";
import type { CommitAnswer, NonceRules, SignerCommit } from "../src/nonces/store/nonce-store.ts";

interface Row {
  status: NonceStatus;
  holdId: string;
  lockedUntilMs: number;
  txHash: string | null;
}

/** What the store is told to be, in as few words as possible. Time is the database's, in milliseconds. */
export interface SignerModel {
  nowMs: number;
  ownerNode: string;
  fencingToken: number;
  expiresAtMs: number;
  nextNonce: number;
  rows: Map<number, Row>;
  requests: Map<string, { nonce: number; holdId: string }[]>;
}

export const newSignerModel = (): SignerModel => ({
  nowMs: 0,
  ownerNode: "",
  fencingToken: 0,
  expiresAtMs: Number.NEGATIVE_INFINITY,
  nextNonce: 0,
  rows: new Map(),
  requests: new Map(),
});

/** What a commit must answer, as far as a caller can see; moves the model along. */
export function expectCommit(model: SignerModel, commit: SignerCommit, rules: NonceRules): object {
  const isLive = model.expiresAtMs > model.nowMs;
  const isMine = model.ownerNode === commit.ownerNode && isLive;
  if (commit.fencingToken !== undefined) {
    if (!isMine || model.fencingToken !== commit.fencingToken)
      return { outcome: "fenced", fencingToken: model.fencingToken };
  } else if (isLive && !isMine) {
    return { outcome: "held", ownerNode: model.ownerNode };
  } else if (!isMine) {
    model.fencingToken += 1;
    model.ownerNode = commit.ownerNode;
  }
  model.expiresAtMs = commit.keepMs > 0 ? model.nowMs + commit.keepMs : Number.NEGATIVE_INFINITY;
  expireHolds(model, rules);
  const marks = commit.marks.map((mark) => applyMark(model, mark));
  const asks = allocate(model, commit, rules);
  const { fencingToken, nextNonce } = model;
  return { outcome: "done", fencingToken, nextNonce, marks, asks };
}

/** The part of an answer that the model speaks about. */
export function seenOf(answer: CommitAnswer): object {
  if (answer.outcome !== "done") return answer;
  const { outcome, fencingToken, nextNonce } = answer;
  const marks = answer.marks.map(
    (row) => row && { status: row.status, holdId: row.hold_id, txHash: row.tx_hash },
  );
  const asks = answer.asks
    .map(({ requestId, n, nonce, holdId, status }) => ({ requestId, n, nonce, holdId, status }))
    .sort((a, b) => (a.requestId < b.requestId ? -1 : a.requestId > b.requestId ? 1 : a.n - b.n));
  return { outcome, fencingToken, nextNonce, marks, asks };
}

function expireHolds(model: SignerModel, rules: NonceRules): void {
  for (const row of model.rows.values()) {
    if (row.status === "HELD" && row.lockedUntilMs <= model.nowMs)
      row.status = nextStatus("HELD", rules.holdExpiry)!;
  }
}

function applyMark(
  model: SignerModel,
  mark: {
    event: MarkEvent;
    nonce: number;
    holdId?: string | undefined;
    txHash?: string | undefined;
  },
) {
  const row = model.rows.get(mark.nonce);
  if (!row) return undefined;
  if (mark.holdId === undefined || mark.holdId === row.holdId) {
    const next = nextStatus(row.status, mark.event);
    const learns = row.status === "CONSUMED" && mark.event === "use" && row.txHash === null;
    if (next || learns) row.txHash = mark.txHash ?? row.txHash;
    row.status = next ?? row.status;
  }
  return { status: row.status, holdId: row.holdId, txHash: row.txHash };
}

function allocate(model: SignerModel, commit: SignerCommit, rules: NonceRules) {
  const fresh = new Map<string, string[]>();
  for (const { requestId, n, holdId } of commit.asks) {
    if (model.requests.has(requestId)) continue;
    const holds = fresh.get(requestId) ?? [];
    if (n === holds.length) holds.push(holdId);
    fresh.set(requestId, holds);
  }
  for (const [requestId, holds] of fresh) {
    const numbers = nextNumbers(model, holds.length, rules);
    if (!numbers) break;
    const given = numbers.map((nonce, n) => ({ nonce, holdId: holds[n]! }));
    model.requests.set(requestId, given);
    for (const { nonce, holdId } of given) {
      const lockedUntilMs = model.nowMs + rules.holdTtlMs;
      model.rows.set(nonce, { status: "HELD", holdId, lockedUntilMs, txHash: null });
      model.nextNonce = Math.max(model.nextNonce, nonce + 1);
    }
  }
  const asked = [...new Set(commit.asks.map(({ requestId }) => requestId))].sort();
  return asked.flatMap((requestId) =>
    (model.requests.get(requestId) ?? []).map(({ nonce, holdId }, n) => {
      const row = model.rows.get(nonce)!;
      const status = row.holdId === holdId ? row.status : "RELEASED";
      return { requestId, n, nonce, holdId, status };
    }),
  );
}

/** The smallest released ones, then new ones, as long as they are not too far ahead of the oldest gap. */
function nextNumbers(model: SignerModel, count: number, rules: NonceRules): number[] | undefined {
  const having = (status: NonceStatus) =>
    [...model.rows]
      .filter(([, row]) => row.status === status)
      .map(([nonce]) => nonce)
      .sort((a, b) => a - b);
  const reused = having("RELEASED").slice(0, count);
  const added = Array.from({ length: count - reused.length }, (_, k) => model.nextNonce + k);
  const gap = having("QUARANTINED")[0];
  const last = added.at(-1);
  if (gap !== undefined && last !== undefined && last - gap > rules.aheadMax) return undefined;
  return [...reused, ...added];
}
