import { HIDDEN_HOLD_ID, type NonceRecord, ROUTES } from "@tenure/protocol";
import type { Principal } from "../../access/principal.ts";
import type { Act } from "../../audit/actor.ts";
import type { Arrival, Nonces } from "../../nonces/nonces.ts";
import { requireGrantedSigner } from "../child-access.ts";
import { numberCursor, readPage } from "../page.ts";
import { type Served, serve } from "../route.ts";
import { requireAllTenants, tenantOf, tenantToMoveFrom } from "../scope.ts";
import type { SignerAccessRules, SignerWrite } from "../signer-access.ts";

type SignerSource = Omit<Nonces, "start" | "stop">;

export function signerRoutes(nonces: SignerSource, accessOf: SignerAccessRules): Served[] {
  return [...readRoutes(nonces), ...numberRoutes(nonces, accessOf)];
}

function readRoutes(nonces: SignerSource): Served[] {
  return [
    serve(ROUTES.listSigners, async ({ scope, query }) => {
      const { limit, cursor = "" } = query;
      const tenant = tenantOf(scope);
      const { rows, next_cursor } = await readPage(
        limit,
        (limit) => nonces.list({ fromSigner: cursor, limit, tenant }),
        (_, next) => next.signer,
      );
      return { items: rows, next_cursor };
    }),
    serve(ROUTES.readSigner, ({ principal, scope, params }) => {
      requireGrantedSigner(principal, params.signer);
      return nonces.read(params.signer, tenantOf(scope));
    }),
    serve(ROUTES.listNonces, async ({ principal, scope, params, query }) => {
      const { limit, cursor, status } = query;
      const filter = { ...params, tenant: tenantOf(scope), status };
      const fromNonce = numberCursor(cursor) ?? 0;
      const { rows, next_cursor } = await readPage(
        limit,
        (limit) => nonces.listNonces({ ...filter, fromNonce, limit }),
        (_, next) => String(next.nonce),
      );
      return { items: rows.map((record) => shownTo(principal, record)), next_cursor };
    }),
    serve(
      ROUTES.moveSigner,
      ({ principal, scope, request: { query }, params: { signer }, body: { tenant: to }, act }) => {
        const isOwn = to === principal.tenant;
        if (!isOwn) requireAllTenants(principal, "signer");
        const from = tenantToMoveFrom(principal, scope, query);
        return nonces.move({ signer, from, to, actor: act?.actor });
      },
    ),
  ];
}

function numberRoutes(nonces: SignerSource, accessOf: SignerAccessRules): Served[] {
  const arrivalOf = (call: SignerWrite & { act: Act | undefined; forwarded: boolean }): Arrival => {
    requireGrantedSigner(call.principal, call.params.signer);
    return { forwarded: call.forwarded, access: accessOf(call), actor: call.act?.actor };
  };
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

/** A hold id proves that the caller owns the nonce, so a list shows it to admins only. */
const shownTo = ({ role }: Principal, record: NonceRecord): NonceRecord =>
  role === "admin" ? record : { ...record, hold_id: HIDDEN_HOLD_ID };
