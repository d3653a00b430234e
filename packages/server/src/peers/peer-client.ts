import { type Actor, fromErrorBody, JSON_TYPE, type Route } from "@tenure/protocol";
import { actorHeader } from "../audit/actor.ts";
import { reasonOfConnectionError } from "../kernel/connection-error.ts";
import type { PeerFetch } from "./peer-fetch.ts";

/** Marks a forwarded request, with the id of its sender. The receiver answers it itself: a request makes one hop at most. */
export const FORWARDED_HEADER = "x-tenure-forwarded";

/** Why a peer answered 401. */
const PEER_TOKEN_REFUSED =
  "it did not accept this instance: auth.peer_token (TENURE_AUTH_PEER_TOKEN) must be set to the same secret on every instance";

/** The sender of a forwarded request. */
export interface PeerIdentity {
  instanceId: string;
  /** `auth.peer_token`; empty where instances need none. */
  peerToken: string;
  peerFetch?: PeerFetch | undefined;
}

export interface PeerCall {
  /** The peer's URL. */
  url: string;
  route: Route;
  params: Record<string, string | number>;
  /** Members that are undefined are left out. */
  query?: Record<string, string | number | boolean | undefined>;
  body?: unknown;
  headers?: Record<string, string>;
  /** The caller of this instance, for the peer's audit log. */
  actor?: Actor | undefined;
  signal: AbortSignal;
}

/** The peer could not be reached, refused this instance, or broke off. Its own answers, errors included, are no such error. */
export class PeerUnavailable extends Error {}

/** Sends a request to another instance. Resolves with the peer's answer, also an error status; throws `PeerUnavailable`. */
export async function callPeer(identity: PeerIdentity, call: PeerCall): Promise<Response> {
  const { method } = call.route;
  const { peerFetch = fetch } = identity;
  const response = await peerFetch(urlOf(call), {
    method,
    signal: call.signal,
    headers: {
      ...(method !== "GET" && { "content-type": JSON_TYPE }),
      ...call.headers,
      ...actorHeader(call.actor),
      [FORWARDED_HEADER]: identity.instanceId,
      ...(identity.peerToken && { authorization: `Bearer ${identity.peerToken}` }),
    },
    ...(call.body !== undefined && { body: JSON.stringify(call.body) }),
  }).catch(unavailable);
  if (response.status === 401) throw new PeerUnavailable(PEER_TOKEN_REFUSED);
  // This instance has checked its caller, so a 403 is about this instance.
  if (response.status === 403)
    throw new PeerUnavailable(fromErrorBody(await readBody(response), 403).message);
  return response;
}

/** The body of a peer's answer. The connection may break at any byte of it: throws `PeerUnavailable`. */
export const readBody = (response: Response): Promise<unknown> =>
  response.json().catch(unavailable);

function unavailable(error: unknown): never {
  throw new PeerUnavailable(reasonOfConnectionError(error as Error), { cause: error });
}

function urlOf({ url, route, params, query = {} }: PeerCall): URL {
  const path = route.path.replace(/:(\w+)/g, (_, name: string) =>
    encodeURIComponent(String(params[name])),
  );
  const target = new URL(path, url);
  for (const [name, value] of Object.entries(query))
    if (value !== undefined) target.searchParams.set(name, String(value));
  return target;
}
