export { TenureError } from "@tenure/protocol";
export {
  type Admin,
  type AdminOptions,
  type CallInput,
  type CallReply,
  createAdmin,
  ROUTES,
} from "./admin.ts";
export type { AnswerContext, ServerCallHandlers } from "./answers.ts";
export type { RunContext, WorkerJob } from "./attempts.ts";
export type { CallOptions } from "./calls.ts";
export {
  type Chain,
  type ProbeReport,
  probeSigner,
  type ViemClient,
  viemChain,
} from "./chain.ts";
export { type Cancel, type Clock, systemClock } from "./clock.ts";
export {
  type Connection,
  type ConnectionEvents,
  type ConnectionOptions,
  type ConnectionState,
  type ConnectionTuning,
  createConnection,
  type Down,
} from "./connection.ts";
export { createEphemeralKey } from "./ephemeral-key.ts";
export type { Greeting, Handshake } from "./handshake.ts";
export { modelNotAvailable } from "./job-failure.ts";
export { type JobEvent, JobFailed, type JobHandle, type JobResult } from "./job-handle.ts";
export { LINK_LIMITS, type LinkLimits, type SendOutcome, type ServerMessage } from "./link.ts";
export { listMembers, type MembersView } from "./members.ts";
export {
  createNodeConnection,
  type NodeConnection,
  type NodeConnectionOptions,
  type NodeDescription,
  type NodeEvents,
  type NodeIncoming,
  type NodeKey,
  type NodeOutgoing,
  type NodeRegistration,
} from "./node-connection.ts";
export {
  type AllocateOptions,
  type Broadcast,
  createNonces,
  type Held,
  NonceKept,
  type Nonces,
  type NoncesOptions,
} from "./nonces.ts";
export { allPages } from "./pages.ts";
export { BACKOFF, type Backoff, type Loss, type LossKind } from "./retry.ts";
export { Session, type SessionOptions, type Turn, type TurnSubmitOptions } from "./session.ts";
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
} from "./session-connection.ts";
export { type FollowOptions, followStream, type ServerEvent, serverEvents } from "./stream.ts";
export type { SubmitOptions } from "./submission.ts";
export { SUBMISSION_LIMITS, type SubmissionLimits } from "./submissions.ts";
export { urlsOf } from "./urls.ts";
export {
  closeOnSignal,
  type SignalOptions,
  Worker,
  type WorkerCloseOptions,
  type WorkerOptions,
} from "./worker.ts";
