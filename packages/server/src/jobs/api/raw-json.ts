import {
  type JobSpec,
  type JobSubmit,
  type JsonText,
  memberText,
  NodeToServer,
  parseMessage,
  SessionToServer,
} from "@tenure/protocol";

/**
 * Payloads, results and progress keep the text they arrived as. They are parsed once, to be checked, and cut out of the frame
 * or body here; a number that no double can represent arrives unchanged.
 */

type WithText<Message, Key extends string> = Message extends unknown
  ? Omit<Message, Key> & Record<Key, JsonText>
  : never;
type OfType<Message, Type extends string> = Extract<Message, { type: Type }>;

export type JobSpecText = WithText<JobSpec, "payload">;
export type JobSubmitText = WithText<JobSubmit, "payload">;

/** A message of a session. The payload of a `job_submit` is text. */
export type SessionMessage = Exclude<SessionToServer, { type: "job_submit" }> | JobSubmitText;

export type ProgressReport = WithText<OfType<NodeToServer, "job_progress">, "body">;
export type ResultReport = Omit<OfType<NodeToServer, "job_result">, "body"> & {
  body?: JsonText | undefined;
};

/** A message of a node. The body of a `job_progress` or `job_result` is text. */
export type NodeMessage =
  | Exclude<NodeToServer, { type: "job_progress" | "job_result" }>
  | ProgressReport
  | ResultReport;

export function parseSessionMessage(frame: string): SessionMessage {
  const message = parseMessage(SessionToServer, frame);
  if (message.type !== "job_submit") return message;
  return Object.assign(message, { payload: requiredText(frame, "payload", "INVALID_MESSAGE") });
}

export function parseNodeMessage(frame: string): NodeMessage {
  const message = parseMessage(NodeToServer, frame);
  switch (message.type) {
    case "job_progress":
      return Object.assign(message, { body: requiredText(frame, "body", "INVALID_MESSAGE") });
    case "job_result":
      return Object.assign(message, { body: cutText(frame, "body", "INVALID_MESSAGE") });
    default:
      return message;
  }
}

/** The payload of a `POST /jobs` whose body was parsed and checked. */
export const payloadOfRequest = (body: string): JsonText =>
  requiredText(body, "payload", "INVALID_REQUEST");

type Code = Parameters<typeof memberText>[2];

/** The schema requires the member, so only a bug in the scanner can miss it. */
function requiredText(source: string, key: string, code: Code): JsonText {
  const text = cutText(source, key, code);
  if (!text) throw new Error(`${key} was parsed and not found in its text`);
  return text;
}

/** Below this a copy costs more than the memory it saves. */
const SMALL_LENGTH = 1_024;

/**
 * A slice of a string keeps the whole string in memory. Without the copy, a payload of a few bytes in a frame of 1 MiB would
 * keep that frame for as long as its job waits.
 */
function cutText(source: string, key: string, code: Code): JsonText | undefined {
  const cut = memberText(source, key, code);
  if (!cut || source.length <= SMALL_LENGTH || cut.text.length * 2 >= source.length) return cut;
  return { ...cut, text: Buffer.from(cut.text).toString() };
}
