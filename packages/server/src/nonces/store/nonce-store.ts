import type { NonceStatus } from "@tenure/protocol";
import type { Db } from "../../store/db.ts";
import { json, sql } from "../../store/sql.ts";
import type { MarkEvent } from "../nonce.ts";
import type { Position } from "../witness.ts";

export interface Mark {
  event: MarkEvent;
  nonce: number;
  /** The hold that owns the number; absent for an operator. */
  holdId?: string | undefined;
  txHash?: string | undefined;
  reason?: string | undefined;
}

/** One number of a request. */
export interface Ask {
  requestId: string;
  n: number;
  holdId: string;
}

export interface SignerCommit extends SignerAccess {
  signer: string;
  ownerNode: string;
  /** The term this write belongs to. Undefined asks for one: a new term when the lease is free, the same when mine. */
  fencingToken: number | undefined;
  /** How long the lease lives on after this commit; 0 gives it back with it. */
  keepMs: number;
  /** Raises the cursor to this, and settles every open number below it as CONSUMED. */
  nextNonce?: number | undefined;
  /** A raise by more than this is not done. Undefined: any distance, the caller confirmed it. */
  raiseMax?: number | undefined;
  marks: Mark[];
  asks: Ask[];
}

/** Which signers a call is about. */
export interface SignerAccess {
  /** The signer must belong to this tenant; `*`: to any. */
  tenant: string;
  /** The tenant of a signer that does not exist yet. Undefined: the call may not open one. */
  opensIn?: string | undefined;
}

export interface NonceRules {
  holdTtlMs: number;
  holdExpiry: "quarantine" | "release";
  aheadMax: number;
}

export interface AllocatedNonce {
  requestId: string;
  n: number;
  nonce: number;
  holdId: string;
  fencingToken: number;
  lockedUntil: Date;
  status: NonceStatus;
}

export interface NonceRow {
  signer: string;
  nonce: number;
  status: NonceStatus;
  hold_id: string;
  fencing_token: number;
  locked_until: Date;
  tx_hash: string | null;
  reason: string | null;
  created_at: Date;
  updated_at: Date;
}

export type Acquired = "new" | "taken" | "taken_over" | "extended";

export type CommitAnswer =
  /** Nothing was done: this database is not the history that was checked. */
  | { outcome: "unchecked" }
  /** Another instance is writing right now; only without `waitMs`. */
  | { outcome: "busy" }
  /** Nothing was done: the signer does not exist and may not be opened, or belongs to another tenant. */
  | { outcome: "absent" | "foreign" }
  | { outcome: "held"; ownerNode: string }
  | { outcome: "fenced"; fencingToken: number }
  | {
      outcome: "done";
      acquired: Acquired | undefined;
      /** Whose lease ran out without being given back, when that is how we got it. */
      formerOwner: string | undefined;
      fencingToken: number;
      expired: number;
      /** The cursor before and after. */
      firstNonce: number;
      nextNonce: number;
      /** What each marked number is now, in the order of the marks. */
      marks: (NonceRow | undefined)[];
      asks: AllocatedNonce[];
      /** The commit lies above this WAL position. */
      wal: string;
    };

/**
 * Writes about several signers, each under its own lease, in one statement and one commit; the answers are in the
 * order of the commits. The lease is locked and compared inside the statement that writes (see `nonce_commit`).
 *
 * With `waitMs` it waits that long for a commit of another instance. Then only one signer may be given: a statement that
 * waits while it has the locks of other signers can deadlock.
 */
export async function commitNonces(
  db: Db,
  request: {
    commits: SignerCommit[];
    waitMs?: number | undefined;
    rules: NonceRules;
    /** The history that was checked. Without it only what the database knows of itself is compared. */
    checked?: Position | undefined;
  },
): Promise<CommitAnswer[]> {
  const { rules, waitMs = null, checked } = request;
  const { rows } = await db.query<{ answer: WireAnswer }>(sql`
    select nonce_commit(
             p_signer        => signer,
             p_owner_node    => owner_node,
             p_fencing_token => fencing_token,
             p_keep_ms       => keep_ms,
             p_wait_ms       => ${waitMs}::int,
             p_hold_ttl_ms   => ${rules.holdTtlMs}::int,
             p_hold_expiry   => ${rules.holdExpiry},
             p_ahead_max     => ${rules.aheadMax}::int,
             p_next_nonce    => next_nonce,
             p_marks         => marks,
             p_asks          => asks,
             p_raise_max     => raise_max,
             p_confirmed_at  => ${checked?.confirmed_at ?? null}::bigint,
             p_run           => ${checked?.run ?? null}::bigint,
             p_wal           => ${checked?.wal ?? null}::pg_lsn,
             p_tenant        => tenant,
             p_opens_in      => opens_in) as answer
      from jsonb_to_recordset(${json(request.commits.map(toWire))}::jsonb)
        as (signer text, owner_node text, fencing_token bigint, keep_ms int, next_nonce bigint, raise_max bigint, marks jsonb, asks jsonb,
            tenant text, opens_in text)`);
  return rows.map(({ answer }) => fromWire(answer));
}

/** Signers that have a hold which ran out: their next commit will set those aside. */
export async function signersWithExpiredHolds(db: Db, limit: number): Promise<string[]> {
  const { rows } = await db.query<{ signer: string }>(sql`
    select distinct signer
      from signer_nonce_allocation
     where status = 'HELD' and locked_until <= tenure_now()
     limit ${limit}`);
  return rows.map(({ signer }) => signer);
}

export interface OpenNonces {
  held: number;
  released: number;
  quarantined: number;
}

/** Of all signers. Reads the partial indexes only: used up numbers cost nothing here. */
export async function countOpenNonces(db: Db): Promise<OpenNonces> {
  const { rows } = await db.query<OpenNonces>(sql`
    select (select count(*) from signer_nonce_allocation where status = 'HELD')        as held,
           (select count(*) from signer_nonce_allocation where status = 'RELEASED')    as released,
           (select count(*) from signer_nonce_allocation where status = 'QUARANTINED') as quarantined`);
  return rows[0]!;
}

/** Used up numbers older than a week, and answers older than 30 days; at most `limit` of each. True: there is more. */
export async function forgetOldNonces(db: Db, limit: number): Promise<boolean> {
  const consumed = await db.query(sql`
    delete from signer_nonce_allocation
     where ctid = any (array(
             select ctid from signer_nonce_allocation
              where status = 'CONSUMED' and updated_at < tenure_now() - interval '7 days'
              limit ${limit}))
       and status = 'CONSUMED'`);
  const answered = await db.query(sql`
    delete from signer_nonce_request
     where ctid = any (array(
             select ctid from signer_nonce_request
              where created_at < tenure_now() - interval '30 days'
              limit ${limit}))`);
  return consumed.rowCount === limit || answered.rowCount === limit;
}

interface WireCommit {
  signer: string;
  owner_node: string;
  fencing_token: number | undefined;
  keep_ms: number;
  next_nonce: number | undefined;
  raise_max: number | undefined;
  marks: object[] | undefined;
  asks: object[] | undefined;
  tenant: string;
  opens_in: string | undefined;
}

function toWire(commit: SignerCommit): WireCommit {
  const { signer, ownerNode, fencingToken, keepMs, nextNonce, raiseMax, marks, asks } = commit;
  return {
    signer,
    owner_node: ownerNode,
    fencing_token: fencingToken,
    keep_ms: keepMs,
    next_nonce: nextNonce,
    raise_max: raiseMax,
    // Absent and not empty: the function then has nothing to look at.
    marks: marks.length > 0 ? marks.map(toWireMark) : undefined,
    asks: asks.length > 0 ? asks.map(toWireAsk) : undefined,
    tenant: commit.tenant,
    opens_in: commit.opensIn,
  };
}

const toWireMark = ({ event, nonce, holdId, txHash, reason }: Mark) => ({
  event,
  nonce,
  hold_id: holdId,
  tx_hash: txHash,
  reason,
});
const toWireAsk = ({ requestId, n, holdId }: Ask) => ({
  request_id: requestId,
  n,
  hold_id: holdId,
});

interface WireNonce extends Omit<NonceRow, "locked_until" | "created_at" | "updated_at"> {
  locked_until: string;
  created_at: string;
  updated_at: string;
}

interface WireAllocated {
  request_id: string;
  n: number;
  nonce: number;
  hold_id: string;
  fencing_token: number;
  locked_until: string;
  status: NonceStatus;
}

interface WireDone {
  outcome: "done";
  acquired: Acquired | null;
  former: string | null;
  fencing_token: number;
  expired: number;
  first_nonce: number;
  next_nonce: number;
  marks: (WireNonce | null)[] | null;
  known: WireAllocated[] | null;
  locked_until: string | null;
  // The new ones, by column: a hundred numbers are four arrays, not six hundred keys.
  request_ids: string[] | null;
  ns: number[] | null;
  nonces: number[] | null;
  hold_ids: string[] | null;
  wal: string;
}

type WireAnswer =
  | { outcome: "busy" | "unchecked" | "absent" | "foreign" }
  | { outcome: "held"; owner_node: string }
  | { outcome: "fenced"; fencing_token: number }
  | WireDone;

function fromWire(answer: WireAnswer): CommitAnswer {
  switch (answer.outcome) {
    case "busy":
    case "unchecked":
    case "absent":
    case "foreign":
      return { outcome: answer.outcome };
    case "held":
      return { outcome: "held", ownerNode: answer.owner_node };
    case "fenced":
      return { outcome: "fenced", fencingToken: answer.fencing_token };
    case "done":
      return fromWireDone(answer);
  }
}

function fromWireDone(answer: WireDone): CommitAnswer {
  return {
    outcome: "done",
    acquired: answer.acquired ?? undefined,
    formerOwner: answer.former ?? undefined,
    fencingToken: answer.fencing_token,
    expired: answer.expired,
    firstNonce: answer.first_nonce,
    nextNonce: answer.next_nonce,
    marks: (answer.marks ?? []).map((row) => (row ? fromWireNonce(row) : undefined)),
    asks: [...fresh(answer), ...(answer.known ?? []).map(fromWireAllocated)],
    wal: answer.wal,
  };
}

function fresh(answer: WireDone): AllocatedNonce[] {
  const { request_ids, ns, nonces, hold_ids, locked_until, fencing_token } = answer;
  const lockedUntil = new Date(locked_until ?? 0);
  return (nonces ?? []).map((nonce, k) => ({
    requestId: request_ids![k]!,
    n: ns![k]!,
    nonce,
    holdId: hold_ids![k]!,
    fencingToken: fencing_token,
    lockedUntil,
    status: "HELD",
  }));
}

const fromWireAllocated = (row: WireAllocated): AllocatedNonce => ({
  requestId: row.request_id,
  n: row.n,
  nonce: row.nonce,
  holdId: row.hold_id,
  fencingToken: row.fencing_token,
  lockedUntil: new Date(row.locked_until),
  status: row.status,
});

const fromWireNonce = (row: WireNonce): NonceRow => ({
  ...row,
  locked_until: new Date(row.locked_until),
  created_at: new Date(row.created_at),
  updated_at: new Date(row.updated_at),
});
