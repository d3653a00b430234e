import * as z from "zod";
import {
  Count,
  DurationMs,
  FencingToken,
  HoldId,
  Nonce,
  RequestId,
  Signer,
  Tenant,
  Timestamp,
  text,
} from "./formats.ts";

export const NONCE_STATUSES = ["HELD", "CONSUMED", "RELEASED", "QUARANTINED"] as const;
export const NonceStatus = z.enum(NONCE_STATUSES);
export type NonceStatus = z.infer<typeof NonceStatus>;

const NONCES_PER_REQUEST_MAX = 100;
export const NONCE_WAIT_MS_DEFAULT = 2_000;
export const NonceWaitMs = DurationMs.max(60_000);

/** Hex is lower-cased while parsing, so that a repeated mark with another spelling of the hash succeeds. */
const TxHash = z
  .string()
  .regex(/^[A-Za-z0-9._:+/=-]{1,200}$/, "must be 1 to 200 of A-Z a-z 0-9 . _ : + / = -")
  .overwrite((hash) => (/^0x[0-9a-f]+$/i.test(hash) ? hash.toLowerCase() : hash));

const Reason = text(500).min(1);

export const NonceAllocate = z.object({
  request_id: RequestId,
  count: z.int().min(1).max(NONCES_PER_REQUEST_MAX).optional(),
});
export type NonceAllocate = z.infer<typeof NonceAllocate>;

/** One nonce and its hold. */
export const NonceAllocation = z.object({
  signer: Signer,
  nonce: Nonce,
  hold_id: HoldId,
  fencing_token: FencingToken,
  locked_until: Timestamp,
  status: NonceStatus,
});
export type NonceAllocation = z.infer<typeof NonceAllocation>;

/** The answer to a request without `count` is one allocation, with it a list. */
export const NonceAllocated = z.union([
  NonceAllocation,
  z.object({ items: z.array(NonceAllocation) }),
]);
export type NonceAllocated = z.infer<typeof NonceAllocated>;

export const NonceUsed = z.object({ hold_id: HoldId, tx_hash: TxHash });
export type NonceUsed = z.infer<typeof NonceUsed>;

export const NonceRecyclable = z.object({ hold_id: HoldId, reason: Reason });
export type NonceRecyclable = z.infer<typeof NonceRecyclable>;

/** The decision of an operator about a nonce whose hold timed out: used, or free again. */
export const NonceResolve = z.object({ status: z.enum(["CONSUMED", "RELEASED"]), reason: Reason });
export type NonceResolve = z.infer<typeof NonceResolve>;

/**
 * Replaces a hold id that the caller may not see. Zeros and not absent, because clients of 0.1 reject a record without
 * `hold_id`.
 */
export const HIDDEN_HOLD_ID = "00000000-0000-0000-0000-000000000000";

/** A row of `signer_nonce_allocation`. In lists `hold_id` is `HIDDEN_HOLD_ID` for all but admins. */
export const NonceRecord = NonceAllocation.extend({
  tx_hash: z.string().nullable(),
  reason: z.string().nullable(),
  created_at: Timestamp,
  updated_at: Timestamp,
});
export type NonceRecord = z.infer<typeof NonceRecord>;

/** A signer with its lease, its cursor and its number of open nonces. */
export const SignerView = z.object({
  signer: Signer,
  /** Its tenant. Absent from a server of 0.1. */
  tenant: Tenant.optional(),
  next_nonce: Nonce,
  owner_node: z.string().nullable(),
  fencing_token: FencingToken,
  acquired_at: Timestamp.nullable(),
  expires_at: Timestamp.nullable(),
  held: Count,
  released: Count,
  quarantined: Count,
  updated_at: Timestamp,
});
export type SignerView = z.infer<typeof SignerView>;

/**
 * Raises the cursor and marks every open nonce below it as CONSUMED. A value below the current cursor is refused; one more
 * than `ahead_max` above it needs `confirm`.
 */
export const SignerRaise = z.object({ next_nonce: Nonce, confirm: z.boolean().optional() });
export type SignerRaise = z.infer<typeof SignerRaise>;

export const SignerMove = z.object({ tenant: Tenant });
export type SignerMove = z.infer<typeof SignerMove>;
