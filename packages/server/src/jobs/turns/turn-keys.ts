import { sessionKey } from "../../membership/store/session-store.ts";

/** The seed's names. The current turn is one field of the session's record, which is membership's. */
export const turnKeys = {
  session: sessionKey,
  turn: (prefix: string, turnId: string) => `${prefix}:scheduler:turn:${turnId}`,
  /** Ours: turns that may have a node, so that one whose session is gone for good is found without a scan. */
  open: (prefix: string) => `${prefix}:v1:turns:open`,
};
