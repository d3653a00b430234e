import {
  type Actor,
  HIDDEN_HOLD_ID,
  type NonceAllocation,
  type NonceRecord,
  type NonceStatus,
  ROUTES,
  type SignerView,
  TenureError,
} from "@tenure/protocol";
import type { Act } from "../audit/actor.ts";
import type { Principal } from "./auth.ts";
import { type Served, serve } from "./route.ts";
import type { SignerAccessRules, SignerScope, SignerWrite } from "./signer-access.ts";

interface Arrival {
  forwarded: boolean;
  access: SignerScope;
  waitMs?: number | undefined;
  actor?: Actor | undefined;
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
  move(move: {
    signer: string;
    from: string;
    to: string;
    actor?: Actor | undefined;
  }): Promise<SignerView>;
  read(signer: string, tenant: string): Promise<SignerView>;
  list(page: { fromSigner: string; limit: number; tenant: string }): Promise<SignerView[]>;
  listNonces(page: {
    signer: string;
    tenant: string;
    status: NonceStatus | undefined;
    fromNonce: number;
    limit: number;
  }): Promise<NonceRecord[]>;
}

export function signerRoutes(nonces: SignerSource, rules: SignerAccessRules): Served[] {
  return [...readRoutes(nonces, rules), ...numberRoutes(nonces, rules)];
}

function readRoutes(nonces: SignerSource, rules: SignerAccessRules): Served[] {
  return [
    serve(ROUTES.listSigners, async ({ principal, query }) => {
      const { limit, cursor = "" } = query;
      const tenant = rules.ofRead(principal, query.tenant);
      const page = await nonces.list({ fromSigner: cursor, limit: limit + 1, tenant });
      return { items: page.slice(0, limit), next_cursor: page[limit]?.signer ?? null };
    }),
    serve(ROUTES.readSigner, ({ principal, params }) =>
      nonces.read(params.signer, rules.ofRead(principal)),
    ),
    serve(ROUTES.listNonces, async ({ principal, params, query: { limit, cursor, status } }) => {
      const fromNonce = parseCursor(cursor);
      const tenant = rules.ofRead(principal);
      const filter = { ...params, tenant, status, fromNonce, limit: limit + 1 };
      const page = await nonces.listNonces(filter);
      const next = page[limit];
      const items = page.slice(0, limit).map((record) => shownTo(principal, record));
      return { items, next_cursor: next ? String(next.nonce) : null };
    }),
    serve(ROUTES.moveSigner, ({ principal, params, body, act }) => {
      const from = rules.ofMove(principal, body.tenant);
      return nonces.move({ signer: params.signer, from, to: body.tenant, actor: act?.actor });
    }),
  ];
}

function numberRoutes(nonces: SignerSource, rules: SignerAccessRules): Served[] {
  const arrivalOf = (
    call: Omit<SignerWrite, "signer"> & { params: { signer: string }; act: Act | undefined },
  ) => ({
    // Whoever sets the header only gets the work done here, which is always correct: it needs no guarding.
    forwarded: call.request.headers["x-tenure-forwarded"] !== undefined,
    access: rules.ofWrite({ ...call, signer: call.params.signer }),
    actor: call.act?.actor,
  });
  return [
    serve(ROUTES.raiseSigner, async (call) => {
      const { params, body } = call;
      const confirmed = body.confirm === true;
      const raise = { signer: params.signer, nextNonce: body.next_nonce, confirmed };
      return nonces.raise(raise, arrivalOf({ ...call, asked: call.query.tenant }));
    }),
    serve(ROUTES.allocateNonces, async (call) => {
      const { params, query, body } = call;
      const items = await nonces.allocate(
        { signer: params.signer, requestId: body.request_id, count: body.count },
        { ...arrivalOf({ ...call, asked: query.tenant }), waitMs: query.wait_ms },
      );
      return body.count === undefined ? items[0]! : { items };
    }),
    serve(ROUTES.markNonceUsed, async (call) => {
      const { params, body } = call;
      const mark = { event: "use", holdId: body.hold_id, txHash: body.tx_hash } as const;
      return nonces.mark({ ...params, ...mark }, arrivalOf(call));
    }),
    serve(ROUTES.markNonceRecyclable, async (call) => {
      const { params, body } = call;
      const mark = { event: "recycle", holdId: body.hold_id, reason: body.reason } as const;
      return nonces.mark({ ...params, ...mark }, arrivalOf(call));
    }),
    serve(ROUTES.resolveNonce, async (call) => {
      const { params, body } = call;
      const event = body.status === "CONSUMED" ? "resolve_consumed" : "resolve_released";
      return nonces.mark({ ...params, event, reason: body.reason }, arrivalOf(call));
    }),
  ];
}

/** A hold id proves that a number is the caller's, so a list shows it to admins only. */
const shownTo = ({ role }: Principal, record: NonceRecord): NonceRecord =>
  role === "admin" ? record : { ...record, hold_id: HIDDEN_HOLD_ID };

function parseCursor(cursor: string | undefined): number {
  if (cursor === undefined) return 0;
  if (/^\d{1,16}$/.test(cursor) && Number.isSafeInteger(Number(cursor))) return Number(cursor);
  throw new TenureError("INVALID_REQUEST", { reason: "cursor: is not one this server made" });
}
