import { type Actor, ROUTES, type Route } from "@tenure/protocol";
import type { FastifyRequest } from "fastify";
import { mayForward, type Principal } from "../access/principal.ts";
import { ACTOR_HEADER, readActorHeader } from "../audit/actor.ts";
import type { Deed } from "../audit/audit.ts";
import { FORWARDED_HEADER } from "../peers/peer-client.ts";
import { clientAddress } from "./client-address.ts";

interface AuditedRoute {
  action: string;
  /** Audited for this role only: calls of programs are too many. */
  only?: "admin";
  subject?: string;
  /** Members of the body that the entry shows. Never `env` or another possible secret. */
  shows?: readonly string[];
}

const id = { subject: "id" };
const signer = { subject: "signer" };
const TOKEN_FIELDS = ["name", "role", "tenant", "scopes", "expires_in_seconds", "join"];

/** The writes that leave an audit entry. `routes/sign-in.ts` writes that of a sign-in, whose actor is not known before, and `routes/tokens.ts` that of a node that enrols. */
export const AUDITED: ReadonlyMap<Route, AuditedRoute> = new Map<Route, AuditedRoute>([
  [ROUTES.createDeployment, { action: "deployment.create", shows: ["name", "tenant"] }],
  [
    ROUTES.updateDeployment,
    { ...id, action: "deployment.update", shows: ["enabled", "pin", "tenant"] },
  ],
  [ROUTES.deleteDeployment, { ...id, action: "deployment.delete" }],
  [ROUTES.restartDeployment, { ...id, action: "deployment.restart" }],
  [ROUTES.rollbackDeployment, { ...id, action: "deployment.rollback", shows: ["revision"] }],
  [ROUTES.drainNode, { ...id, action: "node.drain" }],
  [ROUTES.resumeNode, { ...id, action: "node.resume" }],
  [ROUTES.removeNode, { ...id, action: "node.remove" }],
  [ROUTES.releaseBrake, { action: "brake.release" }],
  [ROUTES.cancelJob, { ...id, action: "job.cancel", only: "admin" }],
  [ROUTES.raiseSigner, { ...signer, action: "signer.raise", shows: ["next_nonce", "confirm"] }],
  [ROUTES.moveSigner, { ...signer, action: "signer.move", shows: ["tenant"] }],
  [ROUTES.allocateNonces, { ...signer, action: "nonce.allocate", only: "admin", shows: ["count"] }],
  [ROUTES.markNonceUsed, { ...signer, action: "nonce.use", only: "admin", shows: ["tx_hash"] }],
  [ROUTES.markNonceRecyclable, { ...signer, action: "nonce.recycle", only: "admin" }],
  [ROUTES.resolveNonce, { ...signer, action: "nonce.resolve", shows: ["status", "reason"] }],
  [ROUTES.setSecret, { subject: "name", action: "secret.set", shows: ["tenant"] }],
  [ROUTES.removeSecret, { subject: "name", action: "secret.remove" }],
  [ROUTES.rotateSecrets, { action: "secret.rotate" }],
  [ROUTES.confirmTimeline, { action: "timeline.confirm" }],
  [ROUTES.redriveDlq, { ...id, action: "dlq.redrive" }],
  [ROUTES.discardDlq, { ...id, action: "dlq.discard" }],
  [ROUTES.createToken, { action: "token.create", shows: TOKEN_FIELDS }],
  [ROUTES.revokeToken, { ...id, action: "token.revoke" }],
  [ROUTES.rotateToken, { ...id, action: "token.rotate", shows: ["grace_seconds"] }],
  [ROUTES.logout, { action: "console.sign-out" }],
]);

const TEXT_LENGTH_MAX = 200;
const FIELDS_MAX = 32;

/** The audit entry of a request; `undefined` when it leaves none. */
export function deedOf(
  route: Route,
  request: FastifyRequest,
  principal: Principal,
): Deed | undefined {
  const audited = AUDITED.get(route);
  if (!audited || (audited.only && principal.role !== audited.only)) return undefined;
  const { action, subject } = audited;
  const params = request.params as Record<string, string>;
  const first = mayForward(principal) ? readActorHeader(request.headers[ACTOR_HEADER]) : undefined;
  return {
    action,
    actor: first ?? actorOf(principal, request),
    ...(subject && { subject: params[subject]?.slice(0, TEXT_LENGTH_MAX) }),
    details: { ...detailsOf(audited, request), ...forwardedBy(request, principal) },
    isForwarded: first !== undefined,
  };
}

export function actorOf({ name, role, tenant }: Principal, request: FastifyRequest): Actor {
  return { name, role, tenant, address: clientAddress(request) };
}

function detailsOf({ shows = [] }: AuditedRoute, { body, params }: FastifyRequest): object {
  const given = typeof body === "object" && body !== null ? (body as Record<string, unknown>) : {};
  const shown = shows.filter((name) => given[name] !== undefined);
  const { nonce } = params as { nonce?: string };
  const fields = Object.keys(given).slice(0, FIELDS_MAX).map(cut);
  return {
    ...(nonce !== undefined && { nonce: cut(nonce) }),
    ...Object.fromEntries(shown.map((name) => [name, cut(given[name])])),
    ...(fields.length > 0 && { fields }),
  };
}

function forwardedBy({ headers }: FastifyRequest, principal: Principal): object {
  const from = headers[FORWARDED_HEADER];
  return mayForward(principal) && from !== undefined ? { forwarded_by: cut(String(from)) } : {};
}

const cut = (value: unknown): unknown =>
  typeof value === "object" || typeof value === "string"
    ? (typeof value === "string" ? value : JSON.stringify(value)).slice(0, TEXT_LENGTH_MAX)
    : value;
