import {
  type Actor,
  ANY_TENANT,
  HIDDEN_HOLD_ID,
  type NonceAllocation,
  type NonceRecord,
  type NonceStatus,
  ROUTES,
  type SignerView,
  TenureError,
} from "@tenure/protocol";
import type { Act } from "../../audit/actor.ts";
import { isOfAllTenants, type Principal } from "../auth.ts";
import { type Served, serve } from "../route.ts";
import { requireAllTenants, tenantOf } from "../scope.ts";
import type { SignerAccessRules, SignerWrite, SignerWriteAccess } from "../signer-access.ts";

interface Arrival {
  forwarded: boolean;
  access: SignerWriteAccess;
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

export function signerRoutes(nonces: SignerSource, accessOf: SignerAccessRules): Served[] {
  return [...readRoutes(nonces), ...numberRoutes(nonces, accessOf)];
}

function readRoutes(nonces: SignerSource): Served[] {
  return [
    serve(ROUTES.listSigners, async ({ scope, query }) => {
      const { limit, cursor = "" } = query;
      const tenant = tenantOf(scope);
      const page = await nonces.list({ fromSigner: cursor, limit: limit + 1, tenant });
      return { items: page.slice(0, limit), next_cursor: page[limit]?.signer ?? null };
    }),
    serve(ROUTES.readSigner, ({ scope, params }) => nonces.read(params.signer, tenantOf(scope))),
    serve(ROUTES.listNonces, async ({ principal, scope, params, query }) => {
      const { limit, cursor, status } = query;
      const page = await nonces.listNonces({
        ...{ ...params, tenant: tenantOf(scope), status },
        ...{ fromNonce: parseCursor(cursor), limit: limit + 1 },
      });
      const next = page[limit];
      const items = page.slice(0, limit).map((record) => shownTo(principal, record));
      return { items, next_cursor: next ? String(next.nonce) : null };
    }),
    serve(
      ROUTES.moveSigner,
      ({ principal, scope, params: { signer }, body: { tenant: to }, act }) => {
        const isOwn = to === principal.tenant;
        if (!isOwn) requireAllTenants(principal, "signer");
        const from = isOfAllTenants(principal) ? ANY_TENANT : tenantOf(scope);
        return nonces.move({ signer, from, to, actor: act?.actor });
      },
    ),
  ];
}

function numberRoutes(nonces: SignerSource, accessOf: SignerAccessRules): Served[] {
  const arrivalOf = (call: SignerWrite & { act: Act | undefined }) => ({
    // Whoever sets the header only gets the work done here, which is always correct: it needs no guarding.
    forwarded: call.request.headers["x-tenure-forwarded"] !== undefined,
    access: accessOf(call),
    actor: call.act?.actor,
  });
  return [
    serve(ROUTES.raiseSigner, async (call) => {
      const { params, body } = call;
      const confirmed = body.confirm === true;
      const raise = { signer: params.signer, nextNonce: body.next_nonce, confirmed };
      return nonces.raise(raise, arrivalOf(call));
    }),
    serve(ROUTES.allocateNonces, async (call) => {
      const { params, query, body } = call;
      const items = await nonces.allocate(
        { signer: params.signer, requestId: body.request_id, count: body.count },
        { ...arrivalOf(call), waitMs: query.wait_ms },
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
