import * as z from "zod";
import { Nonce, Signer, Tenant } from "../formats.ts";
import { API_PREFIX, ListQuery, listOf, queryInt, type Route } from "../http.ts";
import {
  NonceAllocate,
  NonceAllocated,
  NonceRecord,
  NonceRecyclable,
  NonceResolve,
  NonceStatus,
  NonceUsed,
  NonceWaitMs,
  SignerMove,
  SignerRaise,
  SignerView,
} from "../nonce.ts";

const PATH = `${API_PREFIX}/signers`;
const signerParams = z.object({ signer: Signer });
const nonceParams = z.object({ signer: Signer, nonce: queryInt(Nonce) });
/** The tenant in which an admin of all tenants creates a signer. */
const openingQuery = z.object({ tenant: Tenant.optional() });

// `peer`: in Worker-Queue mode any instance forwards a write to the owner of the lease.
export const SIGNER_ROUTES = {
  listSigners: {
    method: "GET",
    path: PATH,
    roles: ["admin", "viewer", "signer"],
    summary: "List signers.",
    query: ListQuery.extend({ tenant: Tenant.optional() }),
    reply: listOf(SignerView),
  },
  readSigner: {
    method: "GET",
    path: `${PATH}/:signer`,
    roles: ["admin", "viewer", "signer", "child"],
    summary: "Read one signer: lease, cursor and open nonces.",
    params: signerParams,
    reply: SignerView,
  },
  raiseSigner: {
    method: "PUT",
    path: `${PATH}/:signer`,
    roles: ["admin", "peer"],
    summary: "Raise the next nonce; it is never lowered.",
    params: signerParams,
    query: openingQuery,
    body: SignerRaise,
    reply: SignerView,
  },
  moveSigner: {
    method: "POST",
    path: `${PATH}/:signer/move`,
    roles: ["admin"],
    summary: "Move a signer with all its nonces to another tenant.",
    params: signerParams,
    body: SignerMove,
    reply: SignerView,
  },
  listNonces: {
    method: "GET",
    path: `${PATH}/:signer/nonces`,
    roles: ["admin", "viewer", "signer"],
    summary: "List the nonces of a signer.",
    params: signerParams,
    query: ListQuery.extend({ status: NonceStatus.optional() }),
    reply: listOf(NonceRecord),
  },
  allocateNonces: {
    method: "POST",
    path: `${PATH}/:signer/nonces`,
    roles: ["admin", "signer", "peer", "child"],
    summary: "Allocate one nonce, or several with count.",
    params: signerParams,
    query: openingQuery.extend({ wait_ms: queryInt(NonceWaitMs).optional() }),
    body: NonceAllocate,
    once: "request_id",
    reply: NonceAllocated,
  },
  markNonceUsed: {
    method: "POST",
    path: `${PATH}/:signer/nonces/:nonce/used`,
    roles: ["admin", "signer", "peer", "child"],
    summary: "Mark a nonce as used; final.",
    params: nonceParams,
    body: NonceUsed,
    once: "hold_id",
    reply: NonceRecord,
  },
  markNonceRecyclable: {
    method: "POST",
    path: `${PATH}/:signer/nonces/:nonce/recyclable`,
    roles: ["admin", "signer", "peer", "child"],
    summary: "Return a nonce that was never broadcast.",
    params: nonceParams,
    body: NonceRecyclable,
    once: "hold_id",
    reply: NonceRecord,
  },
  resolveNonce: {
    method: "POST",
    path: `${PATH}/:signer/nonces/:nonce/resolve`,
    roles: ["admin", "peer"],
    summary: "Resolve a nonce whose hold timed out.",
    params: nonceParams,
    body: NonceResolve,
    reply: NonceRecord,
  },
} as const satisfies Record<string, Route>;
