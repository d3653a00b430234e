import { TenureError } from "@tenure/protocol";
import type { Random } from "../kernel/random.ts";
import { tokenKey } from "../kernel/scope.ts";
import type { HotStore } from "../store/hot-store.ts";
import type { SessionQuota } from "./session-quota.ts";
import { touch } from "./store/last-seen-store.ts";
import { openSession, resumeSession, type SessionClaim } from "./store/session-store.ts";

export interface SessionRequest {
  tenant: string;
  token?: string | undefined;
  resume?: { sessionId: string; resumeToken: string } | undefined;
}

/** Resumes the requested session, or opens a new one. */
export function createSessionAdmission(options: {
  hot: HotStore;
  random: Random;
  quota: SessionQuota;
  /** The key of the list of sessions by the time they were last seen. */
  lastSeen: string;
}) {
  const { hot, random, quota, lastSeen } = options;

  async function resume(claim: SessionClaim & { token: string }): Promise<boolean> {
    const outcome = await resumeSession(hot, claim);
    if (outcome === "refused")
      throw new TenureError("UNAUTHENTICATED", {
        reason: "this session needs the resume token it was given",
      });
    if (outcome !== "resumed") return false;
    await touch(hot, lastSeen, [claim.sessionId]);
    quota.joined(tokenKey({ tenant: claim.tenant, name: claim.token }), claim.sessionId);
    return true;
  }

  async function open(tenant: string, token: string) {
    const sessionId = random.bytes(16).toString("hex");
    const claim = { sessionId, resumeToken: random.bytes(32).toString("base64url"), tenant, token };
    const key = tokenKey({ tenant, name: token });
    // Counted before it is written: connects of the same moment must see each other.
    quota.check(key);
    quota.opened(key, sessionId);
    try {
      // Listed before it is written: the record has no expiry, and only listed sessions are deleted later.
      await touch(hot, lastSeen, [sessionId]);
      await openSession(hot, claim);
    } catch (error) {
      quota.ended(key, sessionId);
      throw error;
    }
    return claim;
  }

  return async ({ tenant, token, resume: requested }: SessionRequest & { token: string }) => {
    const claim = requested && { ...requested, tenant, token };
    if (claim && (await resume(claim))) return claim;
    // An unknown session is not refused: a memory store forgets all sessions at a restart, and clients go on.
    return open(tenant, token);
  };
}
