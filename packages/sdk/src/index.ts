export { TenureError } from "@tenure/protocol";
export { type Cancel, type Clock, systemClock } from "./clock.ts";
export type {
  Connection,
  ConnectionEvents,
  ConnectionOptions,
  ConnectionState,
  ConnectionTuning,
  Down,
} from "./connection/connection.ts";
export { type Frame, type ReadFrame, readFrame } from "./connection/frames.ts";
export type { Greeting, Handshake } from "./connection/handshake.ts";
export {
  LINK_LIMITS,
  type LinkLimits,
  type SendOutcome,
  type ServerMessage,
} from "./connection/link.ts";
export { createConnection } from "./connection/reconnecting.ts";
export { BACKOFF, type Backoff, type Loss, type LossKind } from "./connection/retry.ts";
export type { TlsFiles } from "./connection/tls.ts";
export { urlsOf } from "./connection/urls.ts";
export {
  type Admin,
  type AdminOptions,
  allPages,
  type CallInput,
  type CallReply,
  createAdmin,
  ROUTES,
} from "./http/admin.ts";
export {
  type Chain,
  type ProbeReport,
  probeSigner,
  type ViemClient,
  viemChain,
} from "./http/chain.ts";
export {
  type AllocateOptions,
  type Broadcast,
  createNonces,
  type Held,
  NonceKept,
  type Nonces,
  type NoncesOptions,
} from "./http/nonces.ts";
export type { ServerEvent } from "./http/sse.ts";
export { type FollowOptions, followStream, serverEvents } from "./http/stream.ts";
export { type JobEvent, JobFailed, type JobHandle, type JobResult } from "./session/job-handle.ts";
export {
  Session,
  type SessionOptions,
  type Turn,
  type TurnSubmitOptions,
} from "./session/session.ts";
export {
  createSessionConnection,
  type SessionAck,
  type SessionConnection,
  type SessionConnectionOptions,
  type SessionEvents,
  type SessionIncoming,
  type SessionOrigin,
  type SessionOutgoing,
  type SessionResume,
} from "./session/session-connection.ts";
export type { SubmitOptions } from "./session/submission.ts";
export { SUBMISSION_LIMITS, type SubmissionLimits } from "./session/submissions.ts";
export type { AnswerContext, ServerCallHandlers } from "./worker/answers.ts";
export type { RunContext, WorkerJob } from "./worker/attempt.ts";
export type { CallOptions } from "./worker/calls.ts";
export { modelNotAvailable } from "./worker/job-failure.ts";
export { listMembers, type MemberMap, type MembersView } from "./worker/members.ts";
export {
  createNodeConnection,
  type NodeConnection,
  type NodeConnectionOptions,
  type NodeDescription,
  type NodeEvents,
  type NodeIncoming,
  type NodeOutgoing,
  type NodeRegistration,
} from "./worker/node-connection.ts";
export { createEphemeralKey, type NodeKey } from "./worker/node-key.ts";
export {
  closeOnSignal,
  type SignalOptions,
  Worker,
  type WorkerCloseOptions,
  type WorkerOptions,
} from "./worker/worker.ts";
