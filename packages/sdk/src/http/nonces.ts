import {
  isTenureError,
  type NonceAllocation,
  type NonceRecord,
  TenureError,
} from "@tenure/protocol";
import { randomId } from "../random-id.ts";
import { type AdminOptions, createAdmin, ROUTES } from "./admin.ts";

export interface NoncesOptions extends AdminOptions {
  /** How long a call is tried again under the same request id before it gives up. */
  patienceMs?: number;
}

/** What became of the transaction, as far as is known for sure. */
export type Broadcast =
  /** It was broadcast: the number is used up. */
  | { txHash: string }
  /** It certainly never left: the number may go to somebody else. */
  | { unsent: string };

export interface AllocateOptions {
  /** Names this request: asked again under the same id, it gets the same number. Made when left out. */
  requestId?: string;
  /** How long the server waits for another instance that has the signer. */
  waitMs?: number;
}

export interface Nonces {
  allocate(signer: string, options?: AllocateOptions): Promise<NonceAllocation>;
  /** Up to 100 at once, all or none. */
  allocateMany(
    signer: string,
    count: number,
    options?: AllocateOptions,
  ): Promise<NonceAllocation[]>;
  markUsed(held: Held, txHash: string): Promise<NonceRecord>;
  markRecyclable(held: Held, reason: string): Promise<NonceRecord>;
  /**
   * Allocates a number, lets `send` use it, and marks it by what `send` says. Never by guessing: when `send` throws,
   * the transaction may or may not be on its way, so the hold is kept and runs into quarantine, where the chain or
   * an operator settles it. The error that says a number is kept is a `NonceKept`.
   */
  withNonce<T extends Broadcast>(
    signer: string,
    send: (nonce: NonceAllocation) => Promise<T>,
    options?: AllocateOptions,
  ): Promise<{ nonce: NonceAllocation; broadcast: T }>;
}

export type Held = Pick<NonceAllocation, "signer" | "nonce" | "hold_id">;

/** What became of a transaction is unknown, or could not be recorded. Its number stays with its hold. */
export class NonceKept extends Error {
  override readonly name = "NonceKept";
  readonly nonce: NonceAllocation;
  /** What `send` said, when it did: record it later with `markUsed` or `markRecyclable`. */
  readonly broadcast: Broadcast | undefined;

  constructor(nonce: NonceAllocation, broadcast: Broadcast | undefined, cause: unknown) {
    const why = cause instanceof Error ? cause.message : String(cause);
    super(`nonce ${nonce.nonce} of ${nonce.signer} stays with hold ${nonce.hold_id}: ${why}`, {
      cause,
    });
    this.nonce = nonce;
    this.broadcast = broadcast;
  }
}

const PAUSE_MS_MAX = 1_000;

/**
 * Numbers for signers. A call that failed in a way that may pass, or whose outcome is unknown, is made again under
 * the same request id or hold until `patienceMs` is over: the server does each of them once.
 */
export function createNonces({ patienceMs = 30_000, ...options }: NoncesOptions): Nonces {
  const admin = createAdmin(options);

  async function patiently<T>(call: () => Promise<T>): Promise<T> {
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

  function ask(signer: string, count: number | undefined, { requestId, waitMs }: AllocateOptions) {
    const body = { request_id: requestId ?? randomId(), count };
    const input = { params: { signer }, query: { wait_ms: waitMs }, body };
    return patiently(() => admin.call(ROUTES.allocateNonces, input));
  }

  const nonces: Nonces = {
    async allocate(signer, options = {}) {
      const answer = await ask(signer, undefined, options);
      return "items" in answer ? answer.items[0]! : answer;
    },
    async allocateMany(signer, count, options = {}) {
      const answer = await ask(signer, count, options);
      return "items" in answer ? answer.items : [answer];
    },
    markUsed: ({ signer, nonce, hold_id }, txHash) =>
      patiently(() =>
        admin.call(ROUTES.markNonceUsed, {
          params: { signer, nonce },
          body: { hold_id, tx_hash: txHash },
        }),
      ),
    markRecyclable: ({ signer, nonce, hold_id }, reason) =>
      patiently(() =>
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
    // A request id used before: the number was settled then, or its hold ran out. Sending again could be a second
    // transaction where the first one is on its way.
    if (nonce.status !== "HELD")
      throw new TenureError("CONFLICT", {
        reason: `nonce ${nonce.nonce} of ${signer} is ${nonce.status} and not to be sent again`,
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

/** Also FENCED: the write did nothing, and the next try is routed to the owner there is now. */
function mayPass(error: unknown): boolean {
  return (error instanceof TenureError && error.retryable) || isTenureError(error, "FENCED");
}
