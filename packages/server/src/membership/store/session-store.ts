import { createHash } from "node:crypto";
import * as z from "zod";
import { deleteCommand, readFieldsCommand } from "../../store/command.ts";
import type { HotStore } from "../../store/hot-store.ts";
import { defineScript } from "../../store/script.ts";

/** The seed's key. It also holds the session's current turn. */
export const sessionKey = (prefix: string, sessionId: string): string =>
  `${prefix}:scheduler:session:${sessionId}`;

const openScript = defineScript({
  file: new URL("./lua/open-session.lua", import.meta.url),
  keys: ["session"],
  args: z.object({
    resume: z.boolean(),
    resume_sha256: z.string(),
    tenant: z.string(),
    /** The token's name; empty: none. */
    token: z.string(),
  }),
  reply: z.tuple([z.enum(["opened", "resumed", "refused", "absent"])]),
}).inMemory((space, { session }, { resume, resume_sha256, tenant, token }) => {
  const fields = space.hash(session);
  if (!resume) {
    fields.set("tenant", tenant).set("resume_sha256", resume_sha256).set("token", token);
    return ["opened"];
  }
  const held = fields.get("resume_sha256");
  if (!held || fields.get("tenant") !== tenant) return ["absent"];
  return [held === resume_sha256 ? "resumed" : "refused"];
});

const readFields = readFieldsCommand("read-session", ["tenant", "current_turn_id", "token"]);
const deleteSession = deleteCommand("close-session");

export interface SessionClaim {
  sessionId: string;
  tenant: string;
  /** The name of the token that opens it. */
  token?: string | undefined;
  resumeToken: string;
}

export async function openSession(hot: HotStore, claim: SessionClaim): Promise<void> {
  await hot.run(
    openScript,
    { session: sessionKey(hot.prefix, claim.sessionId) },
    argsOf(claim, false),
  );
}

/** `absent`: the tenant has no such session, and the client gets a new one. `refused`: the resume token is wrong. */
export async function resumeSession(
  hot: HotStore,
  claim: SessionClaim,
): Promise<"resumed" | "refused" | "absent"> {
  const session = sessionKey(hot.prefix, claim.sessionId);
  const [outcome] = await hot.run(openScript, { session }, argsOf(claim, true));
  return outcome === "opened" ? "absent" : outcome;
}

export interface SessionRecord {
  tenant: string;
  token?: string | undefined;
  currentTurnId: string | null;
}

export async function readSession(
  hot: HotStore,
  sessionId: string,
): Promise<SessionRecord | undefined> {
  const fields = await readFields(hot, sessionKey(hot.prefix, sessionId));
  const { tenant, current_turn_id: turnId, token } = fields;
  if (!tenant) return undefined;
  return { tenant, currentTurnId: turnId || null, ...(token && { token }) };
}

export async function closeSession(hot: HotStore, sessionId: string): Promise<void> {
  await deleteSession(hot, sessionKey(hot.prefix, sessionId));
}

const argsOf = ({ tenant, token = "", resumeToken }: SessionClaim, resume: boolean) => ({
  resume,
  tenant,
  token,
  resume_sha256: createHash("sha256").update(resumeToken).digest("hex"),
});
