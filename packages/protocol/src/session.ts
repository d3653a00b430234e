import * as z from "zod";
import { InstanceId, NodeId, SessionId, Tenant, Timestamp, TurnId } from "./formats.ts";

/** A connected client that submits jobs, as the API shows it. */
export const SessionView = z.object({
  session_id: SessionId,
  tenant: Tenant,
  online: z.boolean(),
  instance_id: InstanceId.nullable(),
  current_turn_id: TurnId.nullable(),
  last_seen_at: Timestamp,
});
export type SessionView = z.infer<typeof SessionView>;

/** How a turn ends: by its client, or after a pause that was too long. */
const FINALIZE_REASONS = ["manual", "timeout"] as const;
export const FinalizeReason = z.enum(FINALIZE_REASONS);
export type FinalizeReason = z.infer<typeof FinalizeReason>;

export const TurnView = z.object({
  turn_id: TurnId,
  session_id: SessionId,
  /** Written once, by the first placement; null before it. */
  affinity_node_id: NodeId.nullable(),
  ended: FinalizeReason.nullable(),
});
export type TurnView = z.infer<typeof TurnView>;
