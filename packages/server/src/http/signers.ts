import {
  type NonceAllocation,
  type NonceRecord,
  type NonceStatus,
  ROUTES,
  type SignerView,
  TenureError,
} from "@tenure/protocol";
import type { FastifyRequest } from "fastify";
import { type Served, serve } from "./route.ts";

interface Arrival {
  forwarded: boolean;
  waitMs?: number | undefined;
}

export interface SignerSource {
  allocate(
    ask: { signer: string; requestId: string; count?: number | undefined },
    arrival: Arrival,
  ): Promise<NonceAllocation[]>;
  mark(
    mark: {
      signer: string;
      nonce: number;
      event: "use" | "recycle" | "resolve_consumed" | "resolve_released";
      holdId?: string;
      txHash?: string;
      reason?: string;
    },
    arrival: Arrival,
  ): Promise<NonceRecord>;
  raise(
    ask: { signer: string; nextNonce: number; confirmed: boolean },
    arrival: Arrival,
  ): Promise<SignerView>;
  read(signer: string): Promise<SignerView>;
  list(page: { fromSigner: string; limit: number }): Promise<SignerView[]>;
  listNonces(page: {
    signer: string;
    status: NonceStatus | undefined;
    fromNonce: number;
    limit: number;
  }): Promise<NonceRecord[]>;
}

export function signerRoutes(nonces: SignerSource): Served[] {
  return [
    serve(ROUTES.listSigners, async ({ query: { limit, cursor = "" } }) => {
      const page = await nonces.list({ fromSigner: cursor, limit: limit + 1 });
      return { items: page.slice(0, limit), next_cursor: page[limit]?.signer ?? null };
    }),
    serve(ROUTES.readSigner, ({ params }) => nonces.read(params.signer)),
    serve(ROUTES.raiseSigner, ({ params, body, request }) => {
      const confirmed = body.confirm === true;
      const raise = { signer: params.signer, nextNonce: body.next_nonce, confirmed };
      return nonces.raise(raise, arrivalOf(request));
    }),
    serve(ROUTES.listNonces, async ({ params, query: { limit, cursor, status } }) => {
      const fromNonce = parseCursor(cursor);
      const page = await nonces.listNonces({ ...params, status, fromNonce, limit: limit + 1 });
      const next = page[limit];
      return { items: page.slice(0, limit), next_cursor: next ? String(next.nonce) : null };
    }),
    serve(ROUTES.allocateNonces, async ({ params, query, body, request }) => {
      const items = await nonces.allocate(
        { signer: params.signer, requestId: body.request_id, count: body.count },
        arrivalOf(request, query.wait_ms),
      );
      return body.count === undefined ? items[0]! : { items };
    }),
    serve(ROUTES.markNonceUsed, ({ params, body, request }) =>
      nonces.mark(
        { ...params, event: "use", holdId: body.hold_id, txHash: body.tx_hash },
        arrivalOf(request),
      ),
    ),
    serve(ROUTES.markNonceRecyclable, ({ params, body, request }) =>
      nonces.mark(
        { ...params, event: "recycle", holdId: body.hold_id, reason: body.reason },
        arrivalOf(request),
      ),
    ),
    serve(ROUTES.resolveNonce, ({ params, body, request }) => {
      const event = body.status === "CONSUMED" ? "resolve_consumed" : "resolve_released";
      return nonces.mark({ ...params, event, reason: body.reason }, arrivalOf(request));
    }),
  ];
}

/** Whoever sets the header only gets the work done here, which is always correct: it needs no guarding. */
const arrivalOf = (request: FastifyRequest, waitMs?: number): Arrival => ({
  forwarded: request.headers["x-tenure-forwarded"] !== undefined,
  waitMs,
});

function parseCursor(cursor: string | undefined): number {
  if (cursor === undefined) return 0;
  if (/^\d{1,16}$/.test(cursor) && Number.isSafeInteger(Number(cursor))) return Number(cursor);
  throw new TenureError("INVALID_REQUEST", { reason: "cursor: is not one this server made" });
}
