import { type Actor, fromErrorBody, type Route } from "@tenure/protocol";
import type * as z from "zod";
import { callPeer, type PeerIdentity, PeerUnavailable, readBody } from "../peers/peer-client.ts";
import type { Peer } from "./signer-routing.ts";
import type { SignerAccess } from "./store/nonce-store.ts";

/** The signer's tenant, and the tenant in which a new signer may be opened (`SignerAccess`). Read from a peer only. */
export const TENANT_HEADER = "x-tenure-tenant";
export const OPENS_HEADER = "x-tenure-opens-in";

export type ForwardableRoute = Route & { reply: z.ZodType };
export type ReplyOf<R extends ForwardableRoute> = z.output<R["reply"]>;

export interface ForwardedCall<R extends ForwardableRoute> {
  route: R;
  params: Record<string, string | number>;
  query?: Record<string, string | number>;
  body: unknown;
  access: SignerAccess;
  timeoutMs: number;
}

export type Forwarded<R extends ForwardableRoute> =
  | { outcome: "answered"; reply: ReplyOf<R> }
  | { outcome: "unanswered"; reason: string };

/**
 * Sends a request on to the instance that owns the signer. The peer's answer, also an error, is the answer.
 *
 * `unanswered` covers a peer that is gone and one that stopped answering after it received the request. The second may
 * still execute it. Executing it here as well is safe: every request has an id (`request_id`, `hold_id`) and is done once.
 */
export async function forward<const R extends ForwardableRoute>(
  { url }: Peer,
  { access, timeoutMs, ...call }: ForwardedCall<R>,
  { actor, ...identity }: PeerIdentity & { actor?: Actor | undefined },
): Promise<Forwarded<R>> {
  const headers = {
    [TENANT_HEADER]: access.tenant,
    ...(access.opensIn !== undefined && { [OPENS_HEADER]: access.opensIn }),
  };
  const signal = AbortSignal.timeout(timeoutMs);
  try {
    const response = await callPeer(identity, { ...call, url, headers, actor, signal });
    const body = await readBody(response);
    // A peer of another version may not have the route; the request can be executed here.
    if (response.status === 404 && !isDomainAnswer(body))
      return { outcome: "unanswered", reason: "it answered 404" };
    if (!response.ok) throw fromErrorBody(body, response.status);
    const reply = call.route.reply.safeParse(body);
    if (!reply.success) return { outcome: "unanswered", reason: "its reply cannot be read" };
    return { outcome: "answered", reply: reply.data as ReplyOf<R> };
  } catch (error) {
    if (!(error instanceof PeerUnavailable)) throw error;
    return { outcome: "unanswered", reason: error.message };
  }
}

/** A missing nonce is an answer; a missing route is not. */
function isDomainAnswer(body: unknown): boolean {
  const { error } = body as { error?: { code?: string; details?: { what?: string } } };
  return error?.code === "NOT_FOUND" && error.details?.what !== "route";
}
