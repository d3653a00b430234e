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
/** Where an admin of all tenants opens a signer that does not exist yet. */
const openingQuery = z.object({ tenant: Tenant.optional() });

// `peer`: in Worker-Queue mode any instance forwards a write to the one that holds the lease.
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
    roles: ["admin", "viewer", "signer"],
    summary: "Read one signer: lease, cursor and open numbers.",
    params: signerParams,
    reply: SignerView,
  },
  raiseSigner: {
    method: "PUT",
    path: `${PATH}/:signer`,
    roles: ["admin", "peer"],
    summary: "Raise the next nonce; it never goes down.",
    params: signerParams,
    query: openingQuery,
    body: SignerRaise,
    reply: SignerView,
  },
  moveSigner: {
    method: "POST",
    path: `${PATH}/:signer/move`,
    roles: ["admin"],
    summary: "Give a signer with all its numbers to another tenant.",
    params: signerParams,
    body: SignerMove,
    reply: SignerView,
  },
  listNonces: {
    method: "GET",
    path: `${PATH}/:signer/nonces`,
    roles: ["admin", "viewer", "signer"],
    summary: "List the numbers of a signer.",
    params: signerParams,
    query: ListQuery.extend({ status: NonceStatus.optional() }),
    reply: listOf(NonceRecord),
  },
  allocateNonces: {
    method: "POST",
    path: `${PATH}/:signer/nonces`,
    roles: ["admin", "signer", "peer"],
    summary: "Allocate one number, or several with count.",
    params: signerParams,
    query: openingQuery.extend({ wait_ms: queryInt(NonceWaitMs).optional() }),
    body: NonceAllocate,
    once: "request_id",
    reply: NonceAllocated,
  },
  markNonceUsed: {
    method: "POST",
    path: `${PATH}/:signer/nonces/:nonce/used`,
    roles: ["admin", "signer", "peer"],
    summary: "Say that a number was broadcast; final.",
    params: nonceParams,
    body: NonceUsed,
    once: "hold_id",
    reply: NonceRecord,
  },
  markNonceRecyclable: {
    method: "POST",
    path: `${PATH}/:signer/nonces/:nonce/recyclable`,
    roles: ["admin", "signer", "peer"],
    summary: "Give a number back that was never broadcast.",
    params: nonceParams,
    body: NonceRecyclable,
    once: "hold_id",
    reply: NonceRecord,
  },
  resolveNonce: {
    method: "POST",
    path: `${PATH}/:signer/nonces/:nonce/resolve`,
    roles: ["admin", "peer"],
    summary: "Settle a number whose holder fell silent.",
    params: nonceParams,
    body: NonceResolve,
    reply: NonceRecord,
  },
} as const satisfies Record<string, Route>;
