import {
  isTenureError,
  type NonceAllocation,
  type NonceRecord,
  TenureError,
} from "@tenure/protocol";
import { randomId } from "../random-id.ts";
import { type AdminOptions, createAdmin, ROUTES } from "./admin.ts";

export interface NoncesOptions extends AdminOptions {
  /** How long a call is retried under the same request id. */
  patienceMs?: number;
}

/** The outcome of a transaction, when it is certain. */
export type Broadcast =
  /** It was broadcast: the nonce is used. */
  | { txHash: string }
  /** It was certainly not broadcast: the nonce may be allocated again. */
  | { unsent: string };

export interface AllocateOptions {
  /** Idempotency key: the same id gets the same nonce. Random when left out. */
  requestId?: string;
  /** How long the server waits for another instance that has the lease of the signer. */
  waitMs?: number;
}

export interface Nonces {
  allocate(signer: string, options?: AllocateOptions): Promise<NonceAllocation>;
  /** Allocates up to 100 at once, all or none. */
  allocateMany(
    signer: string,
    count: number,
    options?: AllocateOptions,
  ): Promise<NonceAllocation[]>;
  markUsed(held: Held, txHash: string): Promise<NonceRecord>;
  markRecyclable(held: Held, reason: string): Promise<NonceRecord>;
  /**
   * Allocates a nonce, calls `send` with it, and marks it by the returned outcome. When `send` throws, the transaction may
   * or may not be on its way, so the hold is kept until it expires into quarantine, where the chain or an operator
   * decides. It then throws a `NonceKept`.
   */
  withNonce<T extends Broadcast>(
    signer: string,
    send: (nonce: NonceAllocation) => Promise<T>,
    options?: AllocateOptions,
  ): Promise<{ nonce: NonceAllocation; broadcast: T }>;
}

export type Held = Pick<NonceAllocation, "signer" | "nonce" | "hold_id">;

/** The outcome of a transaction is unknown, or could not be recorded. The nonce stays with its hold. */
export class NonceKept extends Error {
  override readonly name = "NonceKept";
  readonly nonce: NonceAllocation;
  /** The outcome from `send`, if it returned one: record it later with `markUsed` or `markRecyclable`. */
  readonly broadcast: Broadcast | undefined;

  constructor(nonce: NonceAllocation, broadcast: Broadcast | undefined, cause: unknown) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    super(`nonce ${nonce.nonce} of ${nonce.signer} stays with hold ${nonce.hold_id}: ${reason}`, {
      cause,
    });
    this.nonce = nonce;
    this.broadcast = broadcast;
  }
}

const PAUSE_MS_MAX = 1_000;

/**
 * Nonces for signers. A call that failed in a way that may pass, or whose outcome is unknown, is retried under the same
 * request id or hold until `patienceMs` is over: the server executes each once.
 */
export function createNonces({ patienceMs = 30_000, ...options }: NoncesOptions): Nonces {
  const admin = createAdmin(options);

  async function withRetries<T>(call: () => Promise<T>): Promise<T> {
    const giveUpAtMs = performance.now() + patienceMs;
    for (let pauseMs = 20; ; pauseMs = Math.min(pauseMs * 2, PAUSE_MS_MAX)) {
      try {
        return await call();
      } catch (error) {
        if (!mayPass(error) || performance.now() + pauseMs > giveUpAtMs) throw error;
      }
      await new Promise((resolve) => setTimeout(resolve, pauseMs * (0.5 + Math.random())));
    }
  }

  function request(
    signer: string,
    count: number | undefined,
    { requestId, waitMs }: AllocateOptions,
  ) {
    const body = { request_id: requestId ?? randomId(), count };
    const input = { params: { signer }, query: { wait_ms: waitMs }, body };
    return withRetries(() => admin.call(ROUTES.allocateNonces, input));
  }

  const nonces: Nonces = {
    async allocate(signer, options = {}) {
      const answer = await request(signer, undefined, options);
      return "items" in answer ? answer.items[0]! : answer;
    },
    async allocateMany(signer, count, options = {}) {
      const answer = await request(signer, count, options);
      return "items" in answer ? answer.items : [answer];
    },
    markUsed: ({ signer, nonce, hold_id }, txHash) =>
      withRetries(() =>
        admin.call(ROUTES.markNonceUsed, {
          params: { signer, nonce },
          body: { hold_id, tx_hash: txHash },
        }),
      ),
    markRecyclable: ({ signer, nonce, hold_id }, reason) =>
      withRetries(() =>
        admin.call(ROUTES.markNonceRecyclable, {
          params: { signer, nonce },
          body: { hold_id, reason },
        }),
      ),
    withNonce,
  };

  async function withNonce<T extends Broadcast>(
    signer: string,
    send: (nonce: NonceAllocation) => Promise<T>,
    options: AllocateOptions = {},
  ) {
    const nonce = await nonces.allocate(signer, options);
    // The request id was used before: the nonce was marked then, or its hold expired. Sending again could make a second
    // transaction while the first one is on its way.
    if (nonce.status !== "HELD")
      throw new TenureError("CONFLICT", {
        reason: `nonce ${nonce.nonce} of ${signer} is ${nonce.status}; it must not be sent again`,
      });
    let broadcast: T;
    try {
      broadcast = await send(nonce);
    } catch (error) {
      throw new NonceKept(nonce, undefined, error);
    }
    try {
      if ("txHash" in broadcast) await nonces.markUsed(nonce, broadcast.txHash);
      else await nonces.markRecyclable(nonce, broadcast.unsent);
    } catch (error) {
      throw new NonceKept(nonce, broadcast, error);
    }
    return { nonce, broadcast };
  }

  return nonces;
}

/** Also FENCED: the write had no effect, and the retry is routed to the current owner. */
function mayPass(error: unknown): boolean {
  return (error instanceof TenureError && error.retryable) || isTenureError(error, "FENCED");
}
