import type { NonceAllocation, NonceRecord, SignerView } from "@tenure/protocol";
import type { AllocatedNonce, NonceRow } from "./store/nonce-store.ts";
import type { SignerRow } from "./store/signer-store.ts";

// The shapes of the protocol: an instance may forward the answer of another.

export function renderAllocation(signer: string, nonce: AllocatedNonce): NonceAllocation {
  return {
    signer,
    nonce: nonce.nonce,
    hold_id: nonce.holdId,
    fencing_token: nonce.fencingToken,
    locked_until: nonce.lockedUntil.toISOString(),
    status: nonce.status,
  };
}

export function renderNonce(row: NonceRow): NonceRecord {
  return {
    ...row,
    locked_until: row.locked_until.toISOString(),
    created_at: row.created_at.toISOString(),
    updated_at: row.updated_at.toISOString(),
  };
}

export function renderSigner(row: SignerRow): SignerView {
  return {
    ...row,
    acquired_at: row.acquired_at?.toISOString() ?? null,
    expires_at: row.expires_at?.toISOString() ?? null,
    updated_at: row.updated_at.toISOString(),
  };
}
