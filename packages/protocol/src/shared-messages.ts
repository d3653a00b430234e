import * as z from "zod";
import { fromErrorInfo, toErrorInfo } from "./error-body.ts";
import type { TenureError } from "./errors.ts";
import { ClientId, DurationMs, JobId, RequestId } from "./formats.ts";

// Messages that a server sends to sessions and to nodes.

/** This instance is about to stop: connect to another one, after the wait. */
export const GoAway = z.object({
  type: z.literal("go_away"),
  reason: z.string(),
  retry_after_ms: DurationMs,
  urls: z.array(z.string()).optional(),
});
export type GoAway = z.infer<typeof GoAway>;

/** `request_id` or `job_id` name its subject, if it is about one request or job. */
export const ErrorMessage = z.object({
  type: z.literal("error"),
  code: z.string().min(1).max(128),
  message: z.string(),
  retryable: z.boolean(),
  retry_after_ms: DurationMs.optional(),
  request_id: RequestId.optional(),
  job_id: JobId.optional(),
});
export type ErrorMessage = z.infer<typeof ErrorMessage>;

/** An error as a message. Like `toErrorInfo` it hides unexpected errors. */
export function toErrorMessage(
  error: unknown,
  about: Pick<ErrorMessage, "request_id" | "job_id"> = {},
): ErrorMessage {
  const { code, message, retryable, details } = toErrorInfo(error);
  const wait = DurationMs.safeParse(details.retry_after_ms);
  const retry = wait.success ? { retry_after_ms: wait.data } : {};
  return { type: "error", code, message, retryable, ...retry, ...about };
}

export function fromErrorMessage(received: ErrorMessage): TenureError {
  const { type: _, code, message, retryable, ...details } = received;
  return fromErrorInfo({ code, message, retryable, details });
}

/** Why a socket was closed by the server. */
export const CLOSE_CODES = {
  /** More than the unsent bytes allowed are waiting for this reader. */
  TOO_SLOW: 1013,
  INSTANCE_STOPPING: 1012,
  FRAME_TOO_LARGE: 1009,
  BAD_FRAMES: 4400,
  UNAUTHENTICATED: 4401,
  WRONG_ROLE: 4403,
  /** A newer connection replaced this one, or another process has the address. */
  REPLACED: 4409,
} as const;
export type CloseCode = (typeof CLOSE_CODES)[keyof typeof CLOSE_CODES];

/** So many bad frames are answered with an error; then the socket is closed. */
export const BAD_FRAMES_MAX = 3;

/**
 * What a session may ask for in `session_init` and a node in `node_register`. The acknowledgement names the features that the
 * server grants on this connection; a client that asks for none gets the frames of a server that knows none.
 */
export const SESSION_FEATURES = ["updates_on_request", "ack_lists"] as const;
export type SessionFeature = (typeof SESSION_FEATURES)[number];
export const NODE_FEATURES = ["ack_lists", "deferred_start", "list_subset"] as const;
export type NodeFeature = (typeof NODE_FEATURES)[number];

const FEATURES_MAX = 64;

/** Acknowledgements in one frame. */
export const ACKS_MAX = 1_024;

/** Names, also of features that this release does not know. */
export const Features = z.array(ClientId).max(FEATURES_MAX);

/** The features among `asked` that this release knows. */
export const grantedOf = <Feature extends string>(
  known: readonly Feature[],
  asked: readonly string[] | undefined,
): Feature[] => known.filter((feature) => asked?.includes(feature));
