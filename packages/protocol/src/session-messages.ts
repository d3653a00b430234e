import * as z from "zod";
import {
  AttemptId,
  DurationMs,
  InstanceId,
  JobId,
  Json,
  NodeId,
  RandomToken,
  RequestId,
  SessionId,
  TurnId,
} from "./formats.ts";
import { JobError, JobOutcome, JobSpec, JobState } from "./job.ts";
import { FinalizeReason } from "./session.ts";
import { ACKS_MAX, ErrorMessage, Features, GoAway } from "./shared-messages.ts";

// Unknown fields are dropped by `z.object`; unknown types and wrong known fields are errors.

const SessionInit = z.object({
  type: z.literal("session_init"),
  // Any number: another version is answered with UNSUPPORTED_VERSION, not as a bad frame.
  protocol_version: z.int(),
  token: z.string().optional(),
  session_id: SessionId.optional(),
  resume_token: RandomToken.optional(),
  turn_pause_ms: DurationMs.optional(),
  features: Features.optional(),
});

/** A result that has arrived. It implies nothing about other results. */
const SessionAck = z.object({ job_id: JobId, attempt_id: AttemptId, outcome: JobOutcome });
export type SessionAck = z.infer<typeof SessionAck>;
const SessionAckList = z.array(SessionAck).max(ACKS_MAX);
const SessionAcks = z.object({ type: z.literal("acks"), acks: SessionAckList });

const JobSubmit = JobSpec.extend({
  type: z.literal("job_submit"),
  turn: z.boolean().optional(),
  finalize: FinalizeReason.optional(),
  again: z.boolean().optional(),
  /** With `updates_on_request`: the session wants the states of this job. */
  updates: z.boolean().optional(),
  /** With `ack_lists`. */
  acks: SessionAckList.optional(),
});
export type JobSubmit = z.infer<typeof JobSubmit>;

/** With `updates_on_request`: asks for the states of a job that was submitted without `updates`. */
const JobWatch = z.object({
  type: z.literal("job_watch"),
  request_id: RequestId,
  job_id: JobId.optional(),
});

const SessionResultAck = z.object({ type: z.literal("job_result_ack"), job_id: JobId });
const TurnFinalize = z.object({
  type: z.literal("turn_finalize"),
  reason: FinalizeReason,
  /** An `error` about this message repeats it. */
  request_id: RequestId.optional(),
});
const SessionJobCancel = z.object({ type: z.literal("job_cancel"), job_id: JobId });
/** For clients that cannot ping, such as browsers. Only to a server that offers it in `session_init_ack`. */
const SessionPing = z.object({ type: z.literal("session_ping") });
const SessionClose = z.object({ type: z.literal("session_close") });

/** Messages from a session to a server. */
export const SessionToServer = z.discriminatedUnion("type", [
  SessionInit,
  JobSubmit,
  JobWatch,
  SessionResultAck,
  SessionAcks,
  TurnFinalize,
  SessionJobCancel,
  SessionPing,
  SessionClose,
]);
export type SessionToServer = z.infer<typeof SessionToServer>;

const SessionInitAck = z.object({
  type: z.literal("session_init_ack"),
  session_id: SessionId,
  resume_token: RandomToken,
  instance_id: InstanceId,
  protocol_version: z.int(),
  /** True: `session_ping` is answered with `session_pong`. */
  session_ping: z.boolean().optional(),
  /** The granted ones. */
  features: Features.optional(),
});

const JobAccepted = z.object({
  type: z.literal("job_accepted"),
  request_id: RequestId,
  job_id: JobId,
  turn_id: TurnId.optional(),
  /** True when the request id already had a job, which is this one. */
  duplicate: z.boolean(),
});

const JobUpdate = z.object({
  type: z.literal("job_update"),
  job_id: JobId,
  state: JobState,
  attempt_id: AttemptId,
  node_id: NodeId.optional(),
});

const JobProgressToSession = z.object({
  type: z.literal("job_progress"),
  job_id: JobId,
  attempt_id: AttemptId,
  body: Json,
});

const JobResultToSession = z.object({
  type: z.literal("job_result"),
  request_id: RequestId,
  job_id: JobId,
  attempt_id: AttemptId,
  node_id: NodeId.optional(),
  turn_id: TurnId.optional(),
  success: z.boolean(),
  outcome: JobOutcome,
  body: Json.optional(),
  error: JobError.optional(),
});
export type JobResultToSession = z.infer<typeof JobResultToSession>;

const TurnFinalized = z.object({
  type: z.literal("turn_finalized"),
  turn_id: TurnId,
  reason: FinalizeReason,
});

const SessionPong = z.object({ type: z.literal("session_pong") });

/** Messages from a server to a session. */
export const ServerToSession = z.discriminatedUnion("type", [
  SessionInitAck,
  JobAccepted,
  JobUpdate,
  JobProgressToSession,
  JobResultToSession,
  TurnFinalized,
  SessionPong,
  GoAway,
  ErrorMessage,
]);
export type ServerToSession = z.infer<typeof ServerToSession>;
