import { type Actor, fromErrorBody, JSON_TYPE, type Route } from "@tenure/protocol";
import type * as z from "zod";
import { actorHeader } from "../audit/actor.ts";
import { reasonOfConnectionError } from "../kernel/connection-error.ts";
import { PEER_TOKEN_REFUSED } from "../membership/peer-token.ts";
import type { Peer } from "./signer-routing.ts";
import type { SignerAccess } from "./store/nonce-store.ts";

/** Marks a request that has had its one hop: whoever gets it does the work, whatever it thinks of the routing. */
export const FORWARDED_HEADER = "x-tenure-forwarded";

/** Whose signer the call is about, and where it may open a new one: `SignerAccess`. Read from a peer only. */
export const TENANT_HEADER = "x-tenure-tenant";
export const OPENS_HEADER = "x-tenure-opens-in";

export interface ForwardedCall<R extends Route> {
  route: R;
  params: Record<string, string | number>;
  query?: Record<string, string | number>;
  body: unknown;
  access: SignerAccess;
  timeoutMs: number;
}

export type Forwarded<R extends Route> =
  | {
      outcome: "answered";
      value: R extends { reply: z.ZodType } ? z.output<R["reply"]> : undefined;
    }
  | { outcome: "unanswered"; reason: string };

/**
 * Sends a request on to the instance that owns the signer. What that instance says, also an error, is the answer.
 *
 * `unanswered` covers a peer that is gone and one that fell silent with our request. The second may still do it:
 * doing it here as well is safe, because every request names itself (`request_id`, `hold_id`) and is done once.
 */
export async function forward<const R extends Route>(
  { url }: Peer,
  call: ForwardedCall<R>,
  identity: { instanceId: string; peerToken: string; actor?: Actor | undefined },
): Promise<Forwarded<R>> {
  let response: Response;
  let body: unknown;
  try {
    response = await fetch(new URL(pathOf(call), url), {
      method: call.route.method,
      signal: AbortSignal.timeout(call.timeoutMs),
      headers: {
        "content-type": JSON_TYPE,
        [FORWARDED_HEADER]: identity.instanceId,
        [TENANT_HEADER]: call.access.tenant,
        ...(call.access.opensIn !== undefined && { [OPENS_HEADER]: call.access.opensIn }),
        ...actorHeader(identity.actor),
        ...(identity.peerToken && { authorization: `Bearer ${identity.peerToken}` }),
      },
      body: JSON.stringify(call.body),
    });
    body = await response.json();
  } catch (error) {
    return { outcome: "unanswered", reason: reasonOfConnectionError(error as Error) };
  }
  // A peer that does not know us or the route is a matter of settings or versions; the work can be done here.
  if (response.status === 401) return { outcome: "unanswered", reason: PEER_TOKEN_REFUSED };
  if ([403, 404].includes(response.status) && !isDomainAnswer(body))
    return { outcome: "unanswered", reason: `it answered ${response.status}` };
  if (!response.ok) throw fromErrorBody(body, response.status);
  return { outcome: "answered", value: body as never };
}

/** A number that does not exist is an answer; a route that does not exist is not. */
function isDomainAnswer(body: unknown): boolean {
  const { error } = body as { error?: { code?: string; details?: { what?: string } } };
  return error?.code === "NOT_FOUND" && error.details?.what !== "route";
}

function pathOf<R extends Route>({ route, params, query = {} }: ForwardedCall<R>): string {
  const path = route.path.replace(/:(\w+)/g, (_, name: string) =>
    encodeURIComponent(String(params[name])),
  );
  const search = new URLSearchParams(
    Object.entries(query).map(([name, value]): [string, string] => [name, String(value)]),
  ).toString();
  return search ? `${path}?${search}` : path;
}
